"""``verl-like report``, and the report that a run writes when it ends."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from benchmarks._made_run import write_run
from verl_like.cli import main
from verl_like.report.at_end import report_at_end
from verl_like.report.page import MARK
from verl_like.telemetry.trackers import Trackers


class Keeper:
    """A tracker that fails to keep a file."""

    def __init__(self) -> None:
        self.asked: list[Path] = []

    def keep_file(self, path: Path) -> None:
        self.asked.append(path)
        raise OSError("the service is gone")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "made", steps=3, samples=8)
    return tmp_path / "made"


def test_a_report_is_a_page_or_json_and_not_both(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["report", str(run), "--json", "--out", str(run / "other.html")])
    assert "argument --out: not allowed with argument --json" in capsys.readouterr().err
    assert main(["report", str(run), "--out", str(run / "other.html")]) == 0
    assert MARK in (run / "other.html").read_text()


def test_a_report_that_cannot_be_written_ends_no_run(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper()
    (run / "report.html").mkdir()
    report_at_end(run, Trackers([keeper]))  # type: ignore[list-item]
    assert "no report was written (ValueError" in caplog.text and not keeper.asked


def test_a_tracker_that_fails_does_not_deny_the_report(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper()
    with caplog.at_level(logging.WARNING), pytest.raises(OSError, match="the service is gone"):
        report_at_end(run, Trackers([keeper]))  # type: ignore[list-item]
    assert keeper.asked == [run / "report.html"] and "no report was written" not in caplog.text
