"""The output of a process is in its file, whatever ends it, and each start of a run has its own files."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from verl_like.context import current
from verl_like.telemetry.process_log import RunLogs

pytestmark = pytest.mark.processes

PRINTS = """
import logging, os, subprocess, sys
from verl_like.context import current
from verl_like.telemetry.process_log import ProcessLog
print("before the redirection", flush=True)
current(ProcessLog).keep_from_environment()
print("printed", end=" and not flushed")
subprocess.run(["sh", "-c", "echo; echo of a child; echo its error >&2"])
logging.getLogger("verl_like.somewhere").info("written to the log")
logging.getLogger("verl_like_graders.http").info("logged by a grader")
"""


def ran(code: str, place: Path, logs: str = "logs/1") -> tuple[int, str]:
    """Return the exit status and the log."""
    environment = {**os.environ, "VERL_LIKE_LOGS": str(place / logs), "VERL_LIKE_PROCESS": "worker rank 1"}
    with (place / "printed").open("w") as printed:
        status = subprocess.run(
            [sys.executable, "-c", code], env=environment, stdout=printed, stderr=printed, timeout=60, check=False
        ).returncode
    path = place / logs / "worker-rank-1.log"
    return status, path.read_text() if path.exists() else ""


def test_a_process_that_is_killed_leaves_everything_it_and_its_children_have_printed(tmp_path: Path) -> None:
    status, text = ran(PRINTS + "os.kill(os.getpid(), 9)", tmp_path)
    assert status == -signal.SIGKILL
    lines = text.splitlines()
    assert lines[0] == "before the redirection"
    assert "worker rank 1 is process " in lines[1]
    assert lines[2:5] == ["printed and not flushed", "of a child", "its error"]
    assert lines[5].endswith("INFO verl_like.somewhere: written to the log")
    assert lines[6].endswith("INFO verl_like_graders.http: logged by a grader")


def test_a_process_that_serves_a_second_run_writes_to_that_runs_folder(tmp_path: Path) -> None:
    second = f"os.environ['VERL_LIKE_LOGS'] = {str(tmp_path / 'other')!r}; current(ProcessLog).keep_from_environment()"
    second += "; print('second')"
    status, text = ran(PRINTS + second, tmp_path)
    other = (tmp_path / "other/worker-rank-1.log").read_text()
    assert status == 0 and "second" not in text and "written to the log" not in other
    assert "worker rank 1 is process " in other and other.endswith("second\n")


def test_a_full_disk_costs_lines_and_ends_no_process(tmp_path: Path) -> None:
    full = "full = os.open('/dev/full', os.O_WRONLY); os.dup2(full, 1); os.dup2(full, 2); print('x' * 10**6)"
    status, _ = ran(PRINTS + full, tmp_path)
    assert status == 0


def test_where_no_log_can_be_kept_the_process_says_so_and_prints_where_it_did(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, text = ran(PRINTS, tmp_path, logs="file/logs")
    printed = (tmp_path / "printed").read_text()
    assert (status, text) == (0, "")
    assert "the log of worker rank 1 cannot be written: [Errno 20] Not a directory" in printed
    assert "printed and not flushed" in printed and "of a child" in printed


def test_each_start_has_a_folder_and_the_drivers_own_words_are_in_it(tmp_path: Path) -> None:
    logger = logging.getLogger("verl_like.test")
    for start in (1, 2):
        with current(RunLogs).kept(tmp_path / "logs"):
            assert current(RunLogs).folder == str(tmp_path / f"logs/{start}")
            logger.warning("of start %d", start)
        logger.warning("behind it")
    assert not current(RunLogs).folder
    texts = [(tmp_path / f"logs/{start}/driver.log").read_text() for start in (1, 2)]
    assert [text.partition(" ")[2].partition(" ")[2] for text in texts] == [
        f"WARNING verl_like.test: of start {start}\n" for start in (1, 2)
    ]
