"""``verl-like watch`` shows the newest state of a run, and ends when its user wants."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks._made_run import write_run
from verl_like.cli import main
from verl_like.dashboard import notices
from verl_like.dashboard.lines import FollowedLines
from verl_like.dashboard.pace import seconds_left, seconds_per_step
from verl_like.dashboard.picture import picture, summary
from verl_like.dashboard.view import TerminalView, headline_curves, inert, terminal_view
from verl_like.report.run_files import RunFiles
from verl_like.runs.lock import FolderLock

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\u202eevil\rline\nend"
ESCAPES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "made", steps=20, samples=8)
    return tmp_path / "made"


def drawn(view: TerminalView, *, width: int = 100, height: int = 40) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(picture(view, console))
    return out.getvalue()


# ---- time left


def ends(*seconds: float) -> dict[int, float]:
    return dict(enumerate(seconds, start=1))


def test_the_time_left_follows_the_ends_of_the_steps() -> None:
    # Steps of 2, 4 and 6 s are 4 s each on average, and six are left.
    series = {"progress/unix_s": ends(1000, 1002, 1006, 1012)}
    assert seconds_left(series, 10) == pytest.approx(6 * 4)


def test_a_validation_counts_and_the_pause_before_a_continuation_does_not() -> None:
    series = {
        "progress/unix_s": ends(1000, 1003, 9000, 9001),
        "time/step_s": ends(1, 1, 1, 1),
        "time/validation_s": {1: 2.0},
    }
    # From 1 to 2: a step and a validation, 3 s. From 2 to 3: a pause of two hours and a step of 1 s. Then 1 s.
    assert seconds_per_step(series) == pytest.approx((3 + 1 + 1) / 3)


def test_steps_that_were_not_recorded_share_the_time_between_their_neighbours() -> None:
    assert seconds_per_step({"progress/unix_s": {1: 1000.0, 5: 1008.0}}) == pytest.approx(2)


def test_without_times_the_seconds_of_the_steps_are_taken() -> None:
    series = {"time/step_s": ends(1, 3)}
    assert seconds_left(series, 10) == pytest.approx(8 * 2)
    assert seconds_left(series, None) is None
    assert seconds_left({}, 10) is None
    assert seconds_left({"time/step_s": ends(float("nan"))}, 10) is None


# ---- curves and notices


def test_the_curves_are_the_scores_and_one_of_each_chart_that_varies(run: Path) -> None:
    names = [curve.name for curve in headline_curves(RunFiles(run).series)]
    assert names[:2] == ["reward/score_mean", "val/mean@4"]
    assert {"rollout/entropy_mean", "rollout/response_tokens_mean", "actor/grad_norm"} < set(names)
    assert not {"reward/num_failed", "actor/lr", "time/rollout_s", "memory/peak_gib"} & set(names)


def test_warnings_are_those_of_the_newest_start(run: Path) -> None:
    for start, text in ((9, "old"), (10, "new")):
        (run / f"logs/{start}").mkdir(parents=True)
        lines = [
            f"2026-11-27 22:13:2{second},912 {level} verl_like.runs: {text} {level.lower()}"
            for second, level in enumerate(("INFO", "WARNING", "ERROR"))
        ]
        (run / f"logs/{start}/driver.log").write_text("\n".join([*lines, "Traceback: not a record"]))
    assert notices.warnings(RunFiles(run), 5) == [
        "22:13:21 WARNING verl_like.runs: new warning",
        "22:13:22 ERROR verl_like.runs: new error",
    ]
    assert len(notices.warnings(RunFiles(run), 1)) == 1


def test_a_stall_is_shown_with_its_time(run: Path) -> None:
    (run / "stalls/20261127-213425").mkdir(parents=True)
    (run / "stalls/20261127-213425/verdict.txt").write_text("worker rank 1 hangs in update_actor\n")
    view = terminal_view(RunFiles(run))
    assert view.stalls == ["2026-11-27 21:34:25 worker rank 1 hangs in update_actor"]
    assert "stall: 2026-11-27 21:34:25 worker rank 1 hangs" in drawn(view)


def test_the_alarms_are_those_of_the_report_and_a_copy_raises_none_about_its_end(run: Path) -> None:
    rows = (json.dumps({"step": step, "time/step_s": 1.0, "actor/grad_norm": None}) for step in range(1, 10))
    (run / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    found = terminal_view(RunFiles(run)).alarms
    assert found[0].startswith("The run ended early (trainer.max_restarts=3): The run ended after step 9 of 20")
    assert len(found) > 1 and "actor/grad_norm" in found[1]
    assert f"alarm: {found[0][:60]}" in drawn(terminal_view(RunFiles(run)), width=120)
    assert terminal_view(RunFiles(run), is_copy=True).alarms == found[1:]


# ---- picture


def test_the_picture_has_progress_scores_stages_and_memory(run: Path) -> None:
    with FolderLock(run):
        view = terminal_view(RunFiles(run))
    shown = drawn(view)
    for text in ("made (train)", "reward/score_mean", "val/mean@4", "A  rollout", "memory of the largest worker 1.00"):
        assert text in shown, text
    assert view.status == "running" and view.left_s == 0.0
    assert "running, step 20 of 20" in shown and "q quits" in shown


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (200, 60)])
def test_the_picture_fits_into_the_terminal(run: Path, width: int, height: int) -> None:
    lines = drawn(terminal_view(RunFiles(run)), width=width, height=height).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= max(height, 18), "a low terminal shows at least three curves"


@pytest.mark.parametrize("height", [24, 40])
def test_a_higher_terminal_shows_more_curves(run: Path, height: int) -> None:
    view = terminal_view(RunFiles(run))
    shown = drawn(view, height=height)
    assert sum(curve.name in shown for curve in view.curves) == min(len(view.curves), height - 13)


def test_a_narrow_terminal_still_has_curves(run: Path) -> None:
    lines = [line for line in drawn(terminal_view(RunFiles(run)), width=60).splitlines() if "reward/score_mean" in line]
    assert len(re.findall("[▁-█]", lines[0])) >= 8


# ---- hostile text


def test_no_text_of_a_run_can_control_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "evil\x1b[31mname"
    folder.mkdir()
    row = {"step": 1, f"reward/{HOSTILE}": 1.0, f"time/{HOSTILE}_s": 1.0, "time/step_s": 1.0, "reward/score_mean": 1}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "summary.json").write_text(json.dumps({"status": HOSTILE, "steps": 1}))
    (folder / "config.yaml").write_text("# verl-like train\ntrainer: {total_training_steps: 3}\n")
    (folder / "logs/1").mkdir(parents=True)
    line = HOSTILE.replace("\n", " ")
    (folder / "logs/1/driver.log").write_text(f"2026-11-27 22:13:21,912 WARNING {line}\n", encoding="utf-8")
    (folder / f"stalls/{line}").mkdir(parents=True)
    (folder / f"stalls/{line}/verdict.txt").write_text(HOSTILE, encoding="utf-8")
    view = terminal_view(RunFiles(folder))
    texts = [drawn(view, width=200), summary(view, has_blocks=True), *FollowedLines().new(view)]
    assert all("evil" in text for text in texts[:2])
    assert not [found for text in texts for found in ESCAPES.findall(text)]


def test_an_escaped_text_still_shows_what_it_was() -> None:
    assert inert("a\x1b[31mb\nc") == r"a\x1b[31mb c"


@pytest.mark.parametrize(
    "row", [{"a": 1e308, "time/step_s": -1.0}, {"time/step_s": None}, {"time/step_s": 0.0, "time/sync_s": 0.0}], ids=str
)
def test_odd_numbers_are_drawn_or_left_out(tmp_path: Path, row: dict[str, float]) -> None:
    rows = [{"step": 1, **row, "reward/score_mean": 1e308}, {"step": 2, **row, "reward/score_mean": -1e308}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    view = terminal_view(RunFiles(tmp_path))
    assert drawn(view) and summary(view, has_blocks=True)


# ---- lines


def lines_of(lines: FollowedLines, run: Path) -> list[str]:
    return list(lines.new(terminal_view(RunFiles(run))))


def test_each_step_and_warning_is_printed_once_and_a_continuation_is_reported(tmp_path: Path) -> None:
    metrics, log = tmp_path / "metrics.jsonl", tmp_path / "logs/1/driver.log"
    log.parent.mkdir(parents=True)
    log.write_text("2026-11-27 22:13:21,912 WARNING first\n")
    (tmp_path / "summary.json").write_text('{"status": "interrupted", "steps": 9}')
    rows = [json.dumps({"step": step, "reward/score_mean": step / 10}) + "\n" for step in range(1, 7)]
    metrics.write_text("".join(rows[:2]))
    lines = FollowedLines()
    assert lines_of(lines, tmp_path) == [
        "step 2  reward/score_mean 0.200",
        "log: 22:13:21 WARNING first",
        f"{tmp_path.name}: interrupted, step 2",
    ]
    assert lines_of(lines, tmp_path) == []
    metrics.write_text("".join(rows))
    log.write_text(log.read_text() + "2026-11-27 22:13:22,912 ERROR second\n")
    found = lines_of(lines, tmp_path)
    assert [line.split("  ")[0] for line in found[:-1]] == ["step 3", "step 4", "step 5", "step 6"]
    assert found[-1] == "log: 22:13:22 ERROR second"
    metrics.write_text("".join(rows[:4]))
    assert lines_of(lines, tmp_path) == [f"{tmp_path.name}: continued from step 4"]
    metrics.write_text("".join(rows[:5]))
    assert lines_of(lines, tmp_path) == ["step 5  reward/score_mean 0.500"]


# ---- the command


def test_in_a_pipe_it_prints_one_summary_and_ends(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(run)]) == 0
    found = capsys.readouterr().out.splitlines()
    assert found[0].startswith("made (train): stopped, step 20 of 20   last step 20")
    assert any(re.match(r"val/mean@4 +0\.\d+", line) for line in found)
    assert any(re.match(r"step [\d.]+ s: rollout", line) for line in found)


def test_following_a_run_that_has_ended_prints_its_last_step_and_ends(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(run), "--follow", "--every", "0.1"]) == 0
    found = capsys.readouterr().out.splitlines()
    assert found[0].startswith("step 20/20  reward/score_mean 0.")
    assert found[-1] == "made: stopped, step 20 of 20"


@pytest.mark.parametrize("every", ["0", "-1", "nan", "soon", "1e9"])
def test_a_period_that_is_none_is_refused(every: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["watch", "run", "--every", every])
    assert ended.value.code == 2
    assert f"found '{every}', expected 0.1 to 3600 seconds. Give e.g. --every 5." in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path)]) == 2
    assert "is not a run folder: it has neither config.yaml nor metrics.jsonl. Give e.g." in capsys.readouterr().err
