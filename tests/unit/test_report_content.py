"""The content of a report: what the page shows of a run's files, and what becomes of files that are odd."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks._made_run import write_run
from verl_like.report import samples as report_samples
from verl_like.report.content import Content, content_of
from verl_like.report.panels import panels
from verl_like.report.run_files import RunFiles
from verl_like.report.sample_entry import MAX_CHARS, entry_of
from verl_like.report.thinning import thinned


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "made", steps=20, samples=16)
    return tmp_path / "made"


def shard(content: Content, name: str) -> Any:
    return json.loads(gzip.decompress(content.shards[name]))


def test_every_shard_that_the_head_names_is_there_and_no_other(run: Path) -> None:
    content = content_of([RunFiles(run)])
    [entry] = content.head["runs"]
    named = {entry["curves"], entry["settings"], entry["processes"], entry["samples"]["index"]}
    named |= {step["shard"] for step in entry["samples"]["steps"]}
    named |= {entry["lanes"]["shard"].replace("{step}", str(step)) for step in entry["lanes"]["steps"]}
    assert named == set(content.shards)
    json.dumps(content.head, allow_nan=False)


def test_each_metric_is_drawn_once_or_known_to_mean_nothing_as_a_curve(run: Path) -> None:
    content = content_of([RunFiles(run)])
    drawn = [name for panel in content.head["panels"] for name in panel["metrics"]]
    assert len(drawn) == len(set(drawn))
    assert set(RunFiles(run).series) - set(drawn) == {"progress/unix_s"}


def test_a_metric_that_no_table_knows_is_drawn_too() -> None:
    [panel] = panels(["mine/own_number"])
    assert panel["metrics"] == ["mine/own_number"] and panel["section"] == "Other"


def test_stages_are_stacked_and_the_whole_step_comes_last(run: Path) -> None:
    [stack] = [panel for panel in content_of([RunFiles(run)]).head["panels"] if panel["kind"] == "stack"]
    assert stack["metrics"][-1] == "time/step_s" and "time/rollout_s" in stack["metrics"]


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
    assert set(columns) == set(entry["samples"]["columns"]) == {"log_prob_gap", "log_prob", "entropy", "mask"}
    assert len(shown["tokens"]["text"]) == len(columns["entropy"])


def test_samples_beyond_the_size_are_left_out_in_whole_groups_and_the_page_says_so(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sum(len(part) for name, part in content_of([RunFiles(run)]).shards.items() if "-train-" in name)
    monkeypatch.setattr(report_samples, "MAX_SHARD_BYTES", whole / 2)
    content = content_of([RunFiles(run)])
    [note] = content.head["notes"]
    assert note.startswith("160 of 320 samples are shown")
    assert {step["rows"] for step in content.head["runs"][0]["samples"]["steps"]} == {8}


def test_samples_files_beyond_what_is_read_are_left_out_evenly(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(path.stat().st_size for path in (run / "samples").iterdir())
    monkeypatch.setattr(report_samples, "MAX_READ_BYTES", size / 4)
    content = content_of([RunFiles(run)])
    steps = [step["step"] for step in content.head["runs"][0]["samples"]["steps"]]
    assert len(steps) == 5 and steps[0] == 1 and steps[-1] == 20
    assert content.head["notes"][0].startswith("The samples of 15 of 20 files are left out")


def test_runs_that_differ_in_their_seed_are_a_group(tmp_path: Path) -> None:
    for name in ("one", "two", "other"):
        write_run(tmp_path / name, steps=3, samples=8)
        config = tmp_path / name / "config.yaml"
        changed = (
            ("  seed: 1\n", "  seed: 2\n")
            if name == "two"
            else ("  n: 8\n", "  n: 4\n")
            if name == "other"
            else ("", "")
        )
        config.write_text(config.read_text().replace(*changed) if changed[0] else config.read_text())
    content = content_of([RunFiles(tmp_path / name) for name in ("one", "two", "other")])
    assert [group["runs"] for group in content.head["groups"]] == [[0, 1]]
    assert content.head["title"] == "3 runs"


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a run folder: it has neither config.yaml nor metrics.jsonl"):
        RunFiles(tmp_path)


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "ledger.jsonl", "trace.json", "samples/step_3.jsonl"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00nonsense\n{", b"[1, 2]\n", b'{"step": "x"}\n{"step": 3'])
def test_a_missing_or_damaged_file_does_not_prevent_a_report(run: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(content)
    found = content_of([RunFiles(run)])
    json.dumps(found.head, allow_nan=False)
    assert found.head["runs"][0]["name"] == "made"


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
    entry = entry_of({"prompt": text, "response": text, "score": 1.0})
    assert json.loads(gzip.decompress(report_samples.compressed(entry)))["response"] == text


def test_a_text_that_is_too_long_is_cut_and_the_rest_is_counted() -> None:
    entry = entry_of({"prompt": "", "response": "x" * 1_000_000})
    assert len(entry["response"]) == MAX_CHARS and entry["cut"] == {"response": 1_000_000 - MAX_CHARS}


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
    report_samples.compressed(entry_of(line))


def test_the_messages_of_an_episode_come_in_sequence_with_their_calls() -> None:
    call = {"function": {"name": "add", "arguments": {"a": 1}}}
    entry = entry_of(
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
    assert [message["role"] for message in entry["messages"]] == ["user", "assistant", "tool"]
    assert entry["messages"][1]["calls"] == [{"name": "add", "arguments": '{"a": 1}'}]
    assert entry["num_prompt_messages"] == 1


def test_turns_are_those_of_the_last_messages_and_earlier_contexts_are_kept() -> None:
    def context(*texts: str, **others: Any) -> dict[str, Any]:
        return {
            "episode": {"prompt": [], "completion": [{"role": "assistant", "content": each} for each in texts]}
        } | others

    first = context("a", "b", turns=[{"index": index, "tokens": 3, "reward": 0.5} for index in range(2)])
    entry = entry_of(
        context("a*", "c", turns=[{"index": 2, "tokens": 4, "reward": None}], earlier_contexts=[first])
        | {"tokens": {"text": ["x", "y"], "weight_version": [-1, 7]}}
    )
    assert [message.get("turn") for message in entry["messages"]] == [
        None,
        {"index": 2.0, "tokens": 4.0, "reward": None},
    ]
    [earlier] = entry["earlier"]
    assert [message["turn"]["index"] for message in earlier["messages"]] == [0, 1]
    assert entry["tokens"]["columns"]["version"] == [None, 7]


def test_a_secret_in_a_response_is_masked() -> None:
    assert (
        "hf_abcdefghijklmnopqrstuvwxyz0123456789"
        not in entry_of({"response": "token hf_abcdefghijklmnopqrstuvwxyz0123456789 end"})["response"]
    )


def test_thinning_keeps_peaks_and_gaps() -> None:
    points = dict.fromkeys(range(10000), 0.0) | {5_000: 9.0, 7_000: float("nan")}
    steps, values = thinned(points, max_points=100)
    assert len(steps) <= 150 and steps == sorted(steps)
    assert dict(zip(steps, values, strict=True))[5_000] == 9.0 and None in values
    assert (steps[0], steps[-1]) == (0, 9_999), "the last value is shown as a number"


@pytest.mark.parametrize(
    ("total", "epochs", "expected"), [(20, 3, 20), (0, 3, 30), (0, 0, None)], ids=["steps", "epochs", "neither"]
)
def test_the_last_step_is_planned_by_steps_or_by_epochs(
    run: Path, total: int, epochs: int, expected: int | None
) -> None:
    lines = (json.dumps({"step": step, "progress/epoch": step / 10}) for step in range(1, 5))
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (run / "config.yaml").write_text(f"trainer:\n  total_training_steps: {total}\n  total_epochs: {epochs}\n")
    assert RunFiles(run).total_steps == expected


@pytest.mark.parametrize(
    ("job", "files", "last_step", "expected"),
    [
        ("train", {"summary.json": '{"steps": 20, "status": "interrupted"}'}, 20, "interrupted"),
        ("train", {"summary.json": '{"steps": 10, "status": "finished"}', "model/config.json": "{}"}, 20, "stopped"),
        ("train", {"checkpoints/step_20/trainer.json": "{}"}, 20, "stopped"),
        ("sft", {"model/config.json": "{}"}, 20, "finished"),
        ("sft", {"model/config.json": "{}"}, 19, "stopped"),
        ("sft", {"checkpoints/step_19/trainer.json": "{}"}, 19, "interrupted"),
        ("sft", {"checkpoints/step_10/trainer.json": "{}"}, 19, "stopped"),
    ],
    ids=[
        "interrupted",
        "killed after it was extended",
        "killed",
        "sft",
        "sft-extended",
        "sft-interrupted",
        "sft-killed",
    ],
)
def test_the_status_is_that_of_the_last_step(
    run: Path, job: str, files: dict[str, str], last_step: int, expected: str
) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("# verl-like train", f"# verl-like {job}", 1))
    rows = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(rows[:last_step]))
    for name, content in files.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(content)
    assert RunFiles(run).status == expected
