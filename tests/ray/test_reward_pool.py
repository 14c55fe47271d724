"""The pool on a real Ray: poisoned samples, killed hosts, lengths that grow, and when a run is stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
from transformers import AutoTokenizer

from tests._tiny_model import save_model
from verl_like.config.schema import RewardConfig
from verl_like.context import current
from verl_like.controller.errors import FeedbackError, StageTimeout, WorkerError
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.controller.store import StoreCounters
from verl_like.protocol import DataProto, Ragged
from verl_like.reward.decoding import Decoder
from verl_like.reward.pool import PoolScoring, RewardPool
from verl_like.telemetry.heartbeat import read_all

pytestmark = pytest.mark.usefixtures("ray_cluster")

SCORER = """
import os, time

def score(solution_str, ground_truth):
    if solution_str == "loop":
        while True:
            pass
    if solution_str == "power":
        return 9**9**9**9
    if solution_str == "sleep":
        time.sleep(1000)
    if solution_str == "exit":
        os._exit(1)
    if solution_str == "raise":
        raise RuntimeError("cannot grade this")
    if solution_str == "memory":
        return float(len(bytearray(8 << 30)))
    return {"score": float(solution_str == ground_truth), "length": len(solution_str)}

def slow(solution_str, ground_truth):
    with open(os.environ["MARKS"], "a") as file:
        file.write(f"{solution_str} ")
    time.sleep(0.2)
    return float(solution_str == ground_truth)

def timed(solution_str):
    begin = time.monotonic()  # one clock for all processes of a machine
    time.sleep(0.2)
    return {"score": 1.0, "process": os.getpid(), "begin": begin, "end": time.monotonic()}

def count_letters(solution_str):
    return float(sum(1 for letter in solution_str if letter == "a"))
"""
BLOCK_ROWS = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of single characters and the scorer."""
    path = tmp_path_factory.mktemp("pool")
    save_model(path, family="qwen2", tied=True)
    (path / "scorer.py").write_text(SCORER)
    return path


@contextmanager
def pool(
    folder: Path,
    out: Path,
    *,
    function: str = "score",
    env: dict[str, str] | None = None,
    stage_timeout_s: float = 60,
    heartbeats: str = "",
    **options: Any,
) -> Iterator[RewardPool]:
    config = RewardConfig(function=f"{folder}/scorer.py:{function}", **{"num_workers": 2, "timeout_s": 2.0, **options})
    made = RewardPool(
        config,
        Decoder(AutoTokenizer.from_pretrained(folder), trust_remote_code=False),
        failures=out,
        env=env or {},
        timeout_s=stage_timeout_s,
        heartbeats=heartbeats,
    )
    try:
        made.wait_ready(timeout_s=60)
        yield made
    finally:
        made.shut_down()


def blocks(folder: Path, responses: Sequence[str], ground_truths: Sequence[str]) -> list[DataProto]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = [
        {"data_source": "s", "ground_truth": ground_truth, "extra_info": {}, "messages": "p", "columns": {}}
        for ground_truth in ground_truths
    ]
    return [
        DataProto(
            {
                "prompt_text": [f"prompt {i}" for i in range(first, min(first + BLOCK_ROWS, len(responses)))],
                "prompt_ids": Ragged.from_rows([[7, 8]] * len(inputs[first : first + BLOCK_ROWS]), "int32"),
                "response_ids": Ragged.from_rows(
                    [tokenizer.encode(text) for text in responses[first : first + BLOCK_ROWS]], "int32"
                ),
                "reward_inputs": inputs[first : first + BLOCK_ROWS],
            }
        )
        for first in range(0, len(responses), BLOCK_ROWS)
    ]


def begin(made: RewardPool, tables: Sequence[DataProto]) -> PoolScoring:
    scoring = made.open()
    for table in tables:
        scoring.begin({"uid": np.arange(len(table))}, ray.put(table))
    return scoring


def test_the_watchdog_sees_a_host_by_the_name_that_messages_use(folder: Path, tmp_path: Path) -> None:
    with pool(folder, tmp_path, heartbeats=str(tmp_path)):
        assert [reading.who for reading in read_all(tmp_path)] == ["scorer host 0"]


@pytest.mark.slow
@pytest.mark.alone
def test_eight_poisoned_samples_of_512_cost_twelve_seconds_at_most_and_are_reported_by_kind(
    folder: Path, tmp_path: Path
) -> None:
    poison = ["loop", "power", "sleep", "exit", "raise", "memory", "loop", "power"]
    responses = [str(i % 7) for i in range(512)]
    places = [5, 70, 130, 190, 260, 330, 400, 500]
    for place, response in zip(places, poison, strict=True):
        responses[place] = response
    ground_truths = [str(i % 3) for i in range(512)]
    tables = blocks(folder, responses, ground_truths)
    with pool(folder, tmp_path, max_memory_gib=2.0) as made:
        started = time.monotonic()
        scoring = begin(made, tables)
        scores = scoring.scores()
        seconds = time.monotonic() - started
    print(f"512 samples, 8 of them poisoned: {seconds:.1f} s")
    assert seconds < 12
    assert Counter(scores.facts["reward_status"].tolist()) == {
        "ok": 504,
        "timeout": 5,
        "crash": 1,
        "error": 1,
        "memory": 1,
    }
    right = np.array([float(r == t) for r, t in zip(responses, ground_truths, strict=True)])
    right[places] = np.nan
    np.testing.assert_array_equal(scores.score, right.astype(np.float32))
    written = [json.loads(line) for line in (tmp_path / "reward_failures.jsonl").read_text().splitlines()]
    assert sorted((line["prompt"], line["response"]) for line in written) == sorted(
        (f"prompt {place}", response) for place, response in zip(places, poison, strict=True)
    )


def test_steps_that_are_open_at_once_have_their_own_scores_and_a_dropped_one_is_not_waited_for(
    folder: Path, tmp_path: Path
) -> None:
    with pool(folder, tmp_path, timeout_s=20.0, num_workers=4) as made:
        first = begin(made, blocks(folder, ["1", "2"], ["1", "1"]))
        dropped = begin(made, blocks(folder, ["sleep"], ["1"]))
        second = begin(made, blocks(folder, ["2", "2", "1"], ["1", "2", "1"]))
        del dropped
        started = time.monotonic()
        assert second.scores().score.tolist() == [0.0, 1.0, 1.0]
        assert first.scores().score.tolist() == [1.0, 0.0]
        assert time.monotonic() - started < 15, "the dropped sample sleeps until its own deadline"


def test_a_host_that_is_killed_in_mid_batch_loses_no_sample_and_answers_none_twice(
    folder: Path, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    responses = [str(i) for i in range(24)]
    with pool(folder, tmp_path, function="slow", env={"MARKS": str(marks)}) as made:
        scoring = begin(made, blocks(folder, responses, responses))
        while not marks.exists() or len(marks.read_text().split()) < 6:
            time.sleep(0.02)
        ours = {process.pid for process in psutil.Process().children(recursive=True)}  # other runs have hosts too
        [host] = [
            process
            for process in psutil.process_iter(["cmdline"])
            if process.pid in ours and "ScorerHost" in " ".join(process.info["cmdline"] or [])
        ]
        os.kill(host.pid, signal.SIGKILL)
        scores = scoring.scores()
    assert scores.score.tolist() == [1.0] * 24
    begun = Counter(marks.read_text().split())
    assert set(begun) == set(responses) and max(begun.values()) > 1, (
        "the block was scored anew, and only the new scores came back"
    )
    assert not (tmp_path / "reward_failures.jsonl").exists()


def test_a_block_goes_to_every_free_process_of_the_node(folder: Path, tmp_path: Path) -> None:
    responses = [str(i) for i in range(16)]
    with pool(folder, tmp_path, function="timed", num_workers=4) as made:
        found = begin(made, blocks(folder, responses, responses)).scores().details
    assert len({each["process"] for each in found}) == 4
    at_once = [sum(other["begin"] <= each["begin"] < other["end"] for other in found) for each in found]
    assert max(at_once) == 4


@pytest.mark.slow
@pytest.mark.alone
def test_seconds_per_token_stay_flat_while_lengths_grow_tenfold_over_100_steps(folder: Path, tmp_path: Path) -> None:
    steps, rows = 100, 32
    with pool(folder, tmp_path, function="count_letters") as made:
        per_token = []
        for step in range(-3, steps):  # the first few warm up
            length = int(2000 * (1 + 9 * max(step, 0) / (steps - 1)))
            ids = np.full(rows * length, 24, np.int32)
            table = DataProto(
                {
                    "prompt_text": ["p"] * rows,
                    "response_ids": Ragged.from_lengths(ids, np.full(rows, length)),
                    "reward_inputs": [
                        {"data_source": "s", "ground_truth": "", "extra_info": {}, "messages": "p", "columns": {}}
                    ]
                    * rows,
                }
            )
            block = ray.put(table)
            started = time.monotonic()
            scoring = made.open()
            scoring.begin({"uid": np.arange(rows)}, block)
            scores = scoring.scores()
            per_token.append((time.monotonic() - started) / (rows * length))
            assert (scores.facts["reward_status"] == "ok").all() and (scores.score == length).all()
    per_token = per_token[3:]
    first, last = np.median(per_token[:20]), np.median(per_token[-20:])
    print(f"us per token: {first * 1e6:.3f} in the first 20 steps, {last * 1e6:.3f} in the last 20")
    assert last < 1.2 * first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_failure_frac": 0.2},
            r"64 responses have no score \(\d+ error\), and reward.max_failure_frac is 0.2. The first",
        ),
        (
            {"on_failure": "abort", "max_failure_frac": 1.0},
            r"64 responses have no score \(\d+ error\), and reward.on_failure is abort",
        ),
    ],
)
def test_too_many_failures_stop_the_run_and_are_shown(
    folder: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    responses = ["raise" if i % 3 == 0 else "1" for i in range(64)]
    with pool(folder, tmp_path, **options) as made:
        scoring = begin(made, blocks(folder, responses, ["1"] * 64))
        with pytest.raises(FeedbackError, match=message) as stopped:
            scoring.scores()
    shown = str(stopped.value)
    assert "RuntimeError: cannot grade this" in shown and "prompt: 'prompt 0'" in shown and "response: 'raise'" in shown


def test_a_run_is_stopped_as_soon_as_it_is_certain_not_when_every_sample_has_timed_out(
    folder: Path, tmp_path: Path
) -> None:
    responses = ["1", *["sleep"] * 95]
    with pool(folder, tmp_path, max_failure_frac=0.1, timeout_s=0.2) as made:
        scoring = begin(made, blocks(folder, responses, ["1"] * 96))
        with pytest.raises(FeedbackError, match=r"^\d+ of 96 responses have no score \(\d+ timeout\)") as stopped:
            scoring.scores()
    assert int(str(stopped.value).split()[0]) < 0.8 * 95


@pytest.mark.slow
@pytest.mark.alone
def test_timeouts_in_a_row_end_the_wait_with_the_functions_name_before_the_stage_does(
    folder: Path, tmp_path: Path
) -> None:
    """Let all samples of one block fail, which as a share of the batch would not end the run."""
    responses = [*["sleep"] * 32, *["1"] * 64]
    with pool(folder, tmp_path, timeout_s=0.5, num_workers=1, stage_timeout_s=12) as made:
        scoring = begin(made, blocks(folder, responses, responses))
        started = time.monotonic()
        with pytest.raises(FeedbackError, match=r"reward.function=.*:score has not answered for \d s: \d samples"):
            scoring.scores()
        assert time.monotonic() - started < 10


def test_samples_that_are_slow_together_are_reported_as_that(folder: Path, tmp_path: Path) -> None:
    env = {"MARKS": str(tmp_path / "marks")}
    with pool(folder, tmp_path, function="slow", env=env, num_workers=1, stage_timeout_s=2) as made:
        scoring = begin(made, blocks(folder, ["1"] * 32, ["1"] * 32))
        with pytest.raises(StageTimeout, match=r":slow has scored 0 of 32 responses in that time.*reward.num_workers"):
            scoring.scores()


def test_a_function_that_does_not_load_is_reported_at_the_start(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"defines no 'missing'") as stopped:
        with pool(folder, tmp_path, function="missing"):
            pass
    assert "\n" not in str(stopped.value), "a sentence, without the frames that led to it"


def test_samples_are_written_with_all_that_another_function_needs(folder: Path, tmp_path: Path) -> None:
    responses = ["1", "raise", "2"]
    [table] = blocks(folder, responses, ["1", "1", "1"])
    with pool(folder, tmp_path, max_failure_frac=1.0) as made:
        batch = RemoteBatch.put(table, {"uid": np.array(["a", "b", "c"])})
        current(StoreCounters).take()
        scoring = begin(made, [table])
        batch.add_facts(scoring.scores().facts)
        assert current(StoreCounters).take() == table.nbytes, "what the host read is counted here"
        batch.add_facts({"advantage": np.array([0.5, np.nan, -0.5], np.float32)})
        made.dump(batch, np.arange(3), tmp_path / "step_1.jsonl", appends=False)
        made.settle()
    lines = [json.loads(line) for line in (tmp_path / "step_1.jsonl").read_text().splitlines()]
    assert [(line["prompt"], line["response"], line["ground_truth"]) for line in lines] == [
        ("prompt 0", "1", "1"),
        ("prompt 1", "raise", "1"),
        ("prompt 2", "2", "1"),
    ]
    assert [line["score"] for line in lines] == [1.0, None, 0.0]
    assert [line["advantage"] for line in lines] == [0.5, None, -0.5]
    assert lines[0]["prompt_ids"] == [7, 8]
    assert lines[0]["components"] == {"length": 1.0} and lines[0]["failure"] is None and lines[0]["seconds"] >= 0
    assert lines[1]["failure"].startswith("error: ") and "cannot grade this" in lines[1]["failure"]


def test_tokens_are_written_with_their_texts_and_the_columns_that_the_step_has(folder: Path, tmp_path: Path) -> None:
    [table] = blocks(folder, ["12", "3"], ["1", "1"])
    ids = table.ragged("response_ids")
    log_probs = np.arange(len(ids.values), dtype=np.float32) / 3
    log_probs[-1] = np.nan
    table = DataProto({**table.columns, "rollout_log_probs": Ragged.from_lengths(log_probs, ids.lengths)})
    with pool(folder, tmp_path) as made:
        made.dump(
            RemoteBatch.put(table, {"uid": np.array(["a", "b"])}),
            np.arange(2),
            tmp_path / "step_1.jsonl",
            appends=False,
        )
        made.settle()
    lines = [json.loads(line) for line in (tmp_path / "step_1.jsonl").read_text().splitlines()]
    assert all(line["tokens"].keys() == {"text", "rollout_log_probs"} for line in lines)
    texts = [line["tokens"]["text"] for line in lines]
    assert [len(text) for text in texts] == ids.lengths.tolist()
    assert [line["response"] in "".join(text) for line, text in zip(lines, texts, strict=True)] == [True, True]
    assert lines[0]["tokens"]["rollout_log_probs"] == [0.0, 0.333333][: len(texts[0])]
    assert lines[1]["tokens"]["rollout_log_probs"][-1] is None


def test_samples_that_the_disk_refuses_are_reported_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    full = Path("/dev/full")
    with pool(folder, tmp_path) as made:
        [table] = blocks(folder, ["1"], ["1"])
        made.dump(RemoteBatch.put(table, {"uid": np.array(["a"])}), np.arange(1), full, appends=False)
        with pytest.raises(WorkerError) as stopped:
            made.settle()
    assert str(stopped.value).startswith("stage 'samples' failed: /dev/full cannot be written: No space left on device")
    assert "\n" not in str(stopped.value)
