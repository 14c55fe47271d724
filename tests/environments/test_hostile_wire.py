"""A process that writes what it likes into its connection ends its own episode as junk, or late; nothing is raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environments._poison import outcome, played
from verl_like.workers.episodes import FinishedSample

pytestmark = pytest.mark.processes
# What the process sends in place of the answer to its second call, by name; ``frame`` makes a frame of text.
HOSTILE = """
import json, struct
from verl_like_environments import serving

honest = serving.encoded
found = {"messages": [], "reward": 0.0, "is_done": False, "state_key": None, "num_tool_calls": 0,
         "num_tool_errors": 0, "numbers": {}}

def frame(text):
    content = text if isinstance(text, bytes) else text.encode()
    return struct.pack(">I", len(content)) + content

def result(call, value):
    return frame(json.dumps({"id": call, "result": value}))

WIRE = {
    "huge length": lambda call: struct.pack(">I", 2**32 - 1) + b"x" * 100,
    "empty frame": lambda call: struct.pack(">I", 0),
    "no JSON": lambda call: frame("{"),
    "no UTF-8": lambda call: frame(b"\\xff\\xfe\\xfa"),
    "deep": lambda call: frame("[" * 200_000),
    "deep result": lambda call: frame('{"id": %d, "result": %s0%s}' % (call, "[" * 900, "]" * 900)),
    "endless number": lambda call: frame('{"id": %d, "result": %s}' % (call, "9" * 100_000)),
    "no dict": lambda call: result(call, [1, 2]),
    "missing keys": lambda call: result(call, {"messages": []}),
    "nan": lambda call: result(call, {**found, "reward": float("nan")}),
    "huge": lambda call: result(call, {**found, "reward": 10**300}),
    "surrogate": lambda call: result(call, {**found, "messages": [{"role": "user", "content": chr(0xD800)}]}),
    "surrogate in a key": lambda call: result(call, {**found, "state_key": chr(0xDFFF)}),
    "negative": lambda call: result(call, {**found, "num_tool_errors": -5}),
    "error of no text": lambda call: frame('{"id": %d, "error": {"a": [1]}}' % call),
    "many strays": lambda call: frame("0") * 20_000,
    "wrong id": lambda call: result(call + 1000, found),
    "id of another type": lambda call: frame('{"id": true, "result": 1}') + frame('{"id": 1.0, "result": 1}'),
    "half a frame": lambda call: honest({"id": call, "result": found})[:10],
    "error with surrogates": lambda call: frame('{"id": %d, "error": "\\\\ud800", "traceback": "\\\\udfff"}' % call),
    "twice": lambda call: honest({"id": call, "result": {**found, "is_done": True}}) * 2,
}

class Hostile:
    def reset(self, do, number, **row):
        self.do = do
        return f"go {number}"

    def step(self, text):
        serving.encoded = lambda value: WIRE[self.do](value["id"]) if self.do else honest(value)
        return "", 1.0, True
"""
LATE = {"wrong id", "id of another type", "half a frame"}
OTHERS = {"error with surrogates": "error", "twice": "junk"}  # the second call of "twice" has no reward


def names() -> list[str]:
    return [line.split('"')[1] for line in HOSTILE.splitlines() if line.startswith('    "') and "lambda" in line]


def test_every_hostile_frame_has_a_named_end(tmp_path: Path) -> None:
    kinds = [*names(), "", ""]
    assert len(kinds) > 20 and set(kinds) > LATE | set(OTHERS)
    columns = [{"do": do, "number": row} for row, do in enumerate(kinds)]
    samples = run(tmp_path, columns)
    found = {do: sample.facts["environment_status"] for do, sample in zip(kinds, samples, strict=True)}
    expected = {do: "timeout" if do in LATE else OTHERS.get(do, "junk") for do in kinds if do}
    assert found == {**expected, "": "ok"}
    for do, sample in zip(kinds, samples, strict=True):
        assert outcome(sample) and (do == "" or sample.facts["environment_reward"] != 1.0)


def run(folder: Path, columns: list[dict[str, object]]) -> list[FinishedSample]:
    samples, seconds = played(folder, columns, call_timeout_s=3.0, source=HOSTILE, name="Hostile")
    assert seconds < 25.0
    return samples
