"""Samples in a report: which files are read, what fits, and a line of a file as the page shows it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks._made_run import write_run
from verl_like.masking import masked_text
from verl_like.report import content as report_content
from verl_like.report import samples as report_samples
from verl_like.report.content import Content, content_of
from verl_like.report.run_files import TRAIN, VALIDATION, RunFiles, SamplesFile
from verl_like.report.sample_entry import MAX_CHARS, entry_of
from verl_like.report.samples import lasting_choice, packed_file, shown_samples

SECRET = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
entry = partial(entry_of, mask=masked_text)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "made", steps=20, samples=16)
    return tmp_path / "made"


def shard(content: Content, name: str) -> Any:
    return json.loads(gzip.decompress(content.shards[name]))


# ---- files


def test_samples_are_found_by_the_index(run: Path) -> None:
    content = content_of([RunFiles(run)])
    entry = content.head["runs"][0]
    index = shard(content, entry["samples"]["index"])
    assert len(index["score"]) == 20 * 16
    last = len(index["score"]) - 1
    step = next(step for step in entry["samples"]["steps"] if step["step"] == index["step"][last])
    shown = shard(content, step["shard"])[index["row"][last]]
    assert shown["score"] == index["score"][last] and shown["source"] == index["sources"][index["source"][last]]
    columns = shown["tokens"]["columns"]
    assert set(columns) == {"log_prob_gap", "log_prob", "entropy", "mask"}
    assert len(shown["tokens"]["text"]) == len(columns["entropy"])


def test_samples_beyond_the_size_are_left_out_in_whole_groups_and_the_page_says_so(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sum(len(part) for name, part in content_of([RunFiles(run)]).shards.items() if "-train-" in name)
    monkeypatch.setattr(report_content, "MAX_SHARD_BYTES", whole / 2)
    content = content_of([RunFiles(run)])
    [note] = content.head["notes"]
    assert note.startswith("160 of 320 samples are shown")
    index = shard(content, content.head["runs"][0]["samples"]["index"])
    assert set(Counter(index["step"]).values()) == {8} and len(set(index["step"])) == 20


def test_samples_files_beyond_what_is_read_are_left_out_evenly(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(path.stat().st_size for path in (run / "samples").iterdir())
    monkeypatch.setattr(report_samples, "MAX_READ_BYTES", size / 4)
    content = content_of([RunFiles(run)])
    steps = [step["step"] for step in content.head["runs"][0]["samples"]["steps"]]
    assert steps == [1, 9, 17, 20]
    assert content.head["notes"][0].startswith("The samples of 16 of 20 files are left out")


def test_runs_share_the_space_for_samples(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "other", steps=20, samples=16)
    write_run(tmp_path / "without", steps=2, samples=0)
    (tmp_path / "without/samples/step_1.jsonl").unlink()
    (tmp_path / "without/samples/step_2.jsonl").unlink()
    runs = [RunFiles(run), RunFiles(tmp_path / "other"), RunFiles(tmp_path / "without")]
    sizes = [sum(len(part) for name, part in content_of([each]).shards.items() if "-train-" in name) for each in runs]
    monkeypatch.setattr(report_content, "MAX_SHARD_BYTES", max(sizes))
    assert content_of(runs[:1]).head["notes"] == []
    notes = content_of(runs).head["notes"]
    assert [note.partition(" samples are shown")[0] for note in notes] == ["made: 160 of 320", "other: 160 of 320"]


def files_of(folder: Path, names: list[tuple[int, str]], size: int = 10) -> list[SamplesFile]:
    files = []
    for step, kind in names:
        path = folder / f"{kind}_{step}.jsonl"
        path.write_text("x" * size)
        files.append(SamplesFile(step, kind, path))
    return files


def test_chosen_files_stay_chosen_while_the_run_writes_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_samples, "MAX_READ_BYTES", 40)
    files = files_of(tmp_path, [(step, TRAIN) for step in range(1, 17)])
    before: list[int] = []
    for step in range(1, 17):
        chosen = [file.step for file in lasting_choice(files[:step])]
        assert chosen[0] == 1 and chosen[-1] == step and len(chosen) <= 4
        assert set(before[:-1]) <= set(chosen) or len(chosen) <= len(before) // 2 + 2
        before = chosen
    assert before == [1, 9, 16]


def test_files_of_steps_and_of_validations_are_chosen_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_samples, "MAX_READ_BYTES", 60)
    files = files_of(tmp_path, [(step, kind) for step in range(1, 9) for kind in (TRAIN, VALIDATION)])
    chosen = [(file.step, file.kind) for file in lasting_choice(files)]
    assert chosen == [(step, kind) for step in (1, 5, 8) for kind in (TRAIN, VALIDATION)]


def test_a_file_that_is_too_large_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_samples, "MAX_READ_BYTES", 5)
    files = files_of(tmp_path, [(1, TRAIN)])
    assert lasting_choice(files) == files


def test_files_that_a_run_removes_while_they_are_read_count_as_absent(run: Path) -> None:
    files = RunFiles(run).samples()
    for file in files[:15]:
        file.path.unlink()
    shown = shown_samples(files, "r0", pack=packed_file, max_shard_bytes=1e9)
    assert [step["step"] for step in shown.steps] == [16, 17, 18, 19, 20]


# ---- lines


HOSTILE = {
    "script": "</script><script>alert(1)</script>",
    "surrogate": "a\ud800b",
    "ansi": "\x1b[31mred\x1b[0m",
    "null": "a\x00b",
    "separators": "a\u2028b\u2029c",
    "right to left": "\u202eabc",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_arrive_as_they_are(text: str) -> None:
    found = entry({"prompt": text, "response": text, "score": 1.0})
    assert json.loads(gzip.decompress(report_samples.compressed(found)))["response"] == text


def test_a_text_that_is_too_long_is_cut_and_the_rest_is_counted() -> None:
    found = entry({"prompt": "", "response": "x" * 1_000_000})
    assert len(found["response"]) == MAX_CHARS and found["cut"] == {"response": 1_000_000 - MAX_CHARS}


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"prompt": None, "response": 3, "score": "high", "components": None, "tokens": {"text": None}},
        {"episode": {"prompt": "text", "completion": [None, {"role": 1, "content": [{"type": "image"}, "x"]}]}},
        {"episode": {"completion": [{"role": "assistant", "tool_calls": [None, {"function": None}]}]}},
        {"tokens": {"text": ["a"], "old_log_probs": [None], "rollout_log_probs": [None]}},
        {"score": float("nan"), "advantage": float("inf")},
        {"earlier_contexts": 3, "turns": "x", "episode": {"completion": [{"role": "assistant"}]}},
        {
            "earlier_contexts": [None, {"turns": [None, {"index": "first"}]}],
            "tokens": {"text": [], "weight_version": 1},
        },
    ],
    ids=repr,
)
def test_an_odd_line_is_shown_as_far_as_it_goes(line: dict[str, Any]) -> None:
    report_samples.compressed(entry(line))


def test_the_messages_of_an_episode_come_in_sequence_with_their_calls() -> None:
    call = {"function": {"name": "add", "arguments": {"a": 1}}}
    found = entry(
        {
            "episode": {
                "prompt": [{"role": "user", "content": "1+1?"}],
                "completion": [
                    {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "content": "2"},
                ],
            }
        }
    )
    assert [message["role"] for message in found["messages"]] == ["user", "assistant", "tool"]
    assert found["messages"][1]["calls"] == [{"name": "add", "arguments": '{"a": 1}'}]
    assert found["num_prompt_messages"] == 1


def test_turns_are_those_of_the_last_messages_and_earlier_contexts_are_kept() -> None:
    def context(*texts: str, **others: Any) -> dict[str, Any]:
        return {
            "episode": {"prompt": [], "completion": [{"role": "assistant", "content": each} for each in texts]}
        } | others

    first = context("a", "b", turns=[{"index": index, "tokens": 3, "reward": 0.5} for index in range(2)])
    found = entry(
        context("a*", "c", turns=[{"index": 2, "tokens": 4, "reward": None}], earlier_contexts=[first])
        | {"tokens": {"text": ["x", "y"], "weight_version": [-1, 7]}}
    )
    assert [message.get("turn") for message in found["messages"]] == [
        None,
        {"index": 2.0, "tokens": 4.0, "reward": None},
    ]
    [earlier] = found["earlier"]
    assert [message["turn"]["index"] for message in earlier["messages"]] == [0, 1]
    assert found["tokens"]["columns"]["version"] == [None, 7]


def test_secrets_are_masked_in_every_text() -> None:
    message = {"role": "tool", "name": SECRET, "content": SECRET, "tool_calls": [{"function": {"name": SECRET}}]}
    found = entry(
        {
            "response": f"token {SECRET} end",
            "components": {"reason": SECRET, "format": 1.0},
            "episode": {"completion": [message]},
            "extra": SECRET,
        }
    )
    assert SECRET not in json.dumps(found) and found["components"]["format"] == 1.0


def test_tokens_that_spell_a_secret_are_left_out() -> None:
    pieces = [SECRET[at : at + 5] for at in range(0, len(SECRET), 5)]
    assert entry({"tokens": {"text": ["a ", *pieces]}})["tokens"] is None
    assert entry({"tokens": {"text": ["a ", "b"]}})["tokens"]["text"] == ["a ", "b"]


def test_every_token_is_shown() -> None:
    tokens = {"text": ["a"] * 10_000, "entropy": [0.5] * 10_000}
    found = entry({"tokens": tokens})["tokens"]
    assert len(found["text"]) == len(found["columns"]["entropy"]) == 10_000


def test_a_picture_of_an_episode_is_shown_by_its_size() -> None:
    parts = [{"type": "image", "height": 20, "width": 30, "digest": "d"}, {"type": "text", "text": "colour?"}]
    entry = entry_of({"episode": {"prompt": [{"role": "user", "content": parts}]}}, str)
    assert entry["messages"][0]["content"] == "[picture 20 x 30]\ncolour?"
