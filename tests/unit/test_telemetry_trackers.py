"""Trackers: what is on disk after a log, a crash, a resume, and what a wrong name says."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from verl_like.config.schema import Config, TrainerConfig
from verl_like.telemetry.loggers import trackers
from verl_like.telemetry.sample_rows import MAX_CHARS, MAX_ROWS, shown_rows
from verl_like.telemetry.trackers import JsonlTracker, TensorboardTracker, Trackers, read_metrics, write_atomically


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def config_with(*loggers: str) -> Config:
    return Config(trainer=TrainerConfig(experiment_name="a_run", loggers=list(loggers)))


def test_a_line_is_on_disk_when_log_returns(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "new" / "metrics.jsonl")
    tracker.log(1, {"reward/score_mean": 0.5})
    assert lines(tmp_path / "new" / "metrics.jsonl") == [{"step": 1, "reward/score_mean": 0.5}]
    tracker.close()


def test_a_second_process_appends(tmp_path: Path) -> None:
    for step in (1, 2):
        tracker = JsonlTracker(tmp_path / "metrics.jsonl")
        tracker.log(step, {"a/b": step})
        tracker.close()
    assert [row["step"] for row in lines(tmp_path / "metrics.jsonl")] == [1, 2]


def test_resume_drops_later_lines_and_continues(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = JsonlTracker(path)
    for step in range(6):
        first.log(step, {"a/b": 10.0 * step})
    first.close()
    resumed = JsonlTracker(path)
    resumed.truncate_after(3)
    resumed.log(4, {"a/b": -4.0})
    resumed.close()
    assert [(row["step"], row["a/b"]) for row in lines(path)] == [(0, 0.0), (1, 10.0), (2, 20.0), (3, 30.0), (4, -4.0)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["metrics.jsonl"]


def test_a_line_torn_by_a_kill_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a/b": 1.0}\n{"step": 2, "a/')
    assert read_metrics(path) == {"a/b": {1: 1.0}}
    tracker = JsonlTracker(path)
    tracker.log(2, {"a/b": 2.0})
    tracker.truncate_after(2)
    tracker.close()
    assert read_metrics(path) == {"a/b": {1: 1.0, 2: 2.0}}


def test_lines_that_a_broken_machine_left_are_dropped_when_the_run_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "a": 1.0}\n\0\0\0\n{"step": 2, "a"\n[]\n{"step": 2, "a": 2.0}\n\xff\n{"step": 3')
    tracker = JsonlTracker(path)
    tracker.truncate_after(2)
    tracker.close()
    assert read_metrics(path) == {"a": {1: 1.0, 2: 2.0}}
    assert "had 4 lines that cannot be read" in caplog.text


def test_what_is_not_finite_is_valid_json_and_reads_as_nan(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tracker = JsonlTracker(path)
    tracker.log(1, {"a/nan": math.nan, "a/inf": math.inf, "a/one": 1.0})
    tracker.close()
    row = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert row == {"step": 1, "a/nan": None, "a/inf": None, "a/one": 1.0}
    assert math.isnan(read_metrics(path)["a/nan"][1])


def test_reading_merges_calls_of_one_step_and_sorts(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    for step, metrics in [(2, {"a/b": 2.0}), (1, {"a/b": 1.0}), (2, {"val/mean@1": 0.5}), (1, {"a/b": 7.0})]:
        tracker.log(step, metrics)
    tracker.close()
    series = read_metrics(tmp_path / "metrics.jsonl")
    assert list(series["a/b"].items()) == [(1, 7.0), (2, 2.0)] and series["val/mean@1"] == {2: 0.5}
    assert read_metrics(tmp_path / "absent.jsonl") == {}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "half of it \ud800")
    assert path.read_text() == "old"


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_holds_the_scalars_while_the_run_continues(tmp_path: Path) -> None:
    tracker = TensorboardTracker(tmp_path)
    tracker.log(1, {"reward/score_mean": 0.25})
    tracker.log(2, {"reward/score_mean": 0.5})
    assert scalars(tmp_path, "reward/score_mean") == [(1, 0.25), (2, 0.5)]
    tracker.close()


def test_tensorboard_hides_what_a_resume_repeats(tmp_path: Path) -> None:
    first = TensorboardTracker(tmp_path)
    for step in range(1, 5):
        first.log(step, {"a/b": float(step)})
    first.close()
    resumed = TensorboardTracker(tmp_path)
    resumed.truncate_after(2)
    resumed.log(3, {"a/b": 30.0})
    resumed.close()
    assert scalars(tmp_path, "a/b") == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_tensorboard_shows_samples_as_they_are_and_hides_those_that_a_resume_repeats(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator")
    first = TensorboardTracker(tmp_path)
    first.truncate_after(-1)  # as every run begins
    for step in (1, 2):
        first.log_samples(step, "train", [{"prompt": "1+1=", "response": f"# {step}\n| 2", "score": 1.0}])
    first.close()
    resumed = TensorboardTracker(tmp_path)
    resumed.truncate_after(1)
    resumed.log_samples(2, "train", [{"prompt": "1+1=", "response": "again", "score": None}])
    resumed.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    found = [
        (event.step, event.tensor_proto.string_val[0].decode())
        for event in events.Tensors("samples/train/text_summary")
    ]
    assert found == [
        (1, "score `1`\n\n**prompt**\n\n    1+1=\n\n**response**\n\n    # 1\n    | 2"),
        (2, "score `None`\n\n**prompt**\n\n    1+1=\n\n**response**\n\n    again"),
    ]


def test_a_samples_file_is_shown_by_its_first_rows_with_long_texts_cut(tmp_path: Path) -> None:
    path = tmp_path / "step_1.jsonl"
    assert shown_rows(path) == [], "it was written where this process cannot read it"
    rows = [
        {"prompt": "p" * (MAX_CHARS + 7), "response": "r", "ground_truth": {"a": 1}, "score": None, "uid": str(i)}
        for i in range(MAX_ROWS + 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = shown_rows(path)
    assert len(found) == MAX_ROWS and set(found[0]) == {"prompt", "response", "ground_truth", "score"}
    assert found[0]["prompt"] == "p" * MAX_CHARS + " ... (7 more characters)"
    assert (found[0]["ground_truth"], found[0]["score"]) == ('{"a": 1}', None)


def test_an_episode_is_shown_turn_by_turn(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    completion = [
        {"role": "assistant", "reasoning_content": "hm", "content": "let me see", "tool_calls": [call]},
        {"role": "tool", "content": "3"},
        {"role": "assistant", "content": ""},
    ]
    sample = {
        "prompt": "<user>1+2",
        "response": "<all the text>",
        "episode": {"prompt": [{"role": "user", "content": "1+2"}], "completion": completion},
        "environment_status": "ok",
        "num_turns": 2,
    }
    (path := tmp_path / "step_1.jsonl").write_text(json.dumps(sample) + "\n")
    [row] = shown_rows(path)
    assert row == {
        "prompt": "user: 1+2",
        "response": 'assistant (reasoning): hm\nassistant: let me see\nassistant (call): add({"a": 1})\n'
        "tool: 3\nassistant: ",
        "environment_status": "ok",
        "num_turns": 2,
    }


def test_half_a_character_is_shown_and_ends_no_run(tmp_path: Path) -> None:
    path = tmp_path / "step_1.jsonl"
    path.write_text(json.dumps({"prompt": "p", "response": "cut \ud83d", "ground_truth": {"a": "\ud83d"}}) + "\n")
    rows = shown_rows(path)
    assert (rows[0]["response"], rows[0]["ground_truth"]) == ("cut \\ud83d", '{"a": "\\ud83d"}')
    with Trackers([TensorboardTracker(tmp_path)]) as shows:
        shows.log_samples(1, "train", rows)


def test_only_trackers_that_show_texts_are_given_samples(tmp_path: Path) -> None:
    plain, shows = JsonlTracker(tmp_path / "metrics.jsonl"), TensorboardTracker(tmp_path)
    assert not Trackers([plain]).show_samples and Trackers([plain, shows]).show_samples
    with Trackers([plain, shows]) as both:
        both.log_samples(1, "validation", [{"response": "r"}])
    assert (tmp_path / "metrics.jsonl").read_text() == ""
    assert list(tmp_path.glob("events.*"))


def test_the_named_loggers_are_built_and_closed(tmp_path: Path) -> None:
    with trackers(config_with("jsonl", "tensorboard"), tmp_path / "run", total_steps=3) as tracker:
        tracker.log(1, {"a/b": 1.0})
        tracker.truncate_after(0)
        time.sleep(1.0)  # files of one second are read by name, the tenth of a process before the ninth
        tracker.log(1, {"a/b": 2.0})
    assert read_metrics(tmp_path / "run" / "metrics.jsonl") == {"a/b": {1: 2.0}}
    assert scalars(tmp_path / "run" / "tensorboard", "a/b") == [(1, 2.0)]


def test_no_loggers_is_allowed(tmp_path: Path) -> None:
    with trackers(config_with(), tmp_path, total_steps=1) as tracker:
        tracker.log(1, {"a/b": 1.0})


def test_an_unknown_logger_says_what_exists(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"trainer.loggers names \['wanbd'\]; expected some of .*'wandb'"):
        trackers(config_with("jsonl", "wanbd"), tmp_path, total_steps=1)


def test_all_are_closed_even_where_one_raises() -> None:
    class Member:
        def __init__(self, fails: bool) -> None:
            self.fails, self.is_closed = fails, False

        def log(self, step: int, metrics: object) -> None: ...

        def truncate_after(self, step: int) -> None: ...

        def close(self) -> None:
            self.is_closed = True
            if self.fails:
                raise OSError("disk full")

    members = [Member(False), Member(True), Member(False)]
    with pytest.raises(OSError, match="disk full"), Trackers(list(members)):
        pass
    assert all(member.is_closed for member in members)
