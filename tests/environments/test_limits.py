"""More episodes than processes wait for one; a machine that allows no process is reported; poll() stays cheap."""

from __future__ import annotations

import errno
import logging
import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from tests.environments import _files
from tests.environments._poison import played
from tests.environments._processes import playing
from verl_like.environments import processes as processes_module
from verl_like.environments.processes import CallFailure, ProcessesExhausted

pytestmark = pytest.mark.processes
ROW = {"messages": [{"role": "user", "content": "hi"}], "columns": {"do": "nothing"}, "seed": 1}
TURN = {"text": "x", "message": {"role": "assistant", "content": "x"}}


def test_episodes_beyond_the_limit_wait_and_their_time_does_not_run(tmp_path: Path) -> None:
    with playing(tmp_path, _files.POISON, "Poison", max_processes=2) as played:
        first, second, third = (played.processes.open() for _ in range(3))
        call = played.processes.call(third, {"do": "reset", "episode": 1, "row": ROW}, limit_s=0.5)
        for each in (first, second):
            played.ask(each, {"do": "reset", "row": ROW})
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            assert played.processes.poll(0.1) == []
        assert played.processes.is_waiting(third) and not played.processes.is_waiting(second)
        played.processes.end(first)
        assert played.wait({call})[call].failure is None
        assert not played.processes.is_waiting(third)


def test_an_episode_that_waits_may_be_ended(tmp_path: Path) -> None:
    with playing(tmp_path, _files.POISON, "Poison", max_processes=1) as played:
        first, second, third = (played.processes.open() for _ in range(3))
        played.processes.end(second)
        played.processes.end(first)
        assert played.ask(third, {"do": "reset", "row": ROW})["messages"]


def test_all_episodes_run_on_few_processes_and_have_their_whole_time(tmp_path: Path) -> None:
    columns = [{"do": "", "number": row} for row in range(12)]
    samples, _ = played(tmp_path, columns, call_timeout_s=5.0, max_processes=3)
    assert [sample.facts["environment_status"] for sample in samples] == ["ok"] * 12
    assert [sample.facts["environment_reward"] for sample in samples] == [row * 3 / 8 for row in range(12)]


def test_a_fork_that_fails_makes_its_episode_wait(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The user's file lets every fork after the second fail while a file exists."""
    source = f"""
import os

fork, forked = os.fork, []

def limited():
    if len(forked) >= 2 and os.path.exists({str(tmp_path / "full")!r}):
        raise OSError({errno.EAGAIN}, "no more processes")
    forked.append(1)
    return fork()

os.fork = limited
{_files.POISON}
"""
    (tmp_path / "full").touch()
    with caplog.at_level(logging.WARNING), playing(tmp_path, source, "Poison") as played:
        numbers = [played.processes.open() for _ in range(3)]
        for each in numbers[:2]:
            assert played.ask(each, {"do": "reset", "row": ROW})["messages"]
        call = played.processes.call(numbers[2], {"do": "reset", "episode": 1, "row": ROW}, limit_s=1.0)
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            assert played.processes.poll(0.1) == []
        assert [record.getMessage()[:63] for record in caplog.records] == [
            "no more than 2 processes of environments can be forked: [Errno "
        ]
        (tmp_path / "full").unlink()
        played.processes.end(numbers[0])
        assert played.wait({call})[call].failure is None


def test_a_machine_without_a_free_process_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_module, "EXHAUSTED_TIMEOUT_S", 1.0)
    source = f"import os\ndef fork():\n    raise OSError({errno.EAGAIN}, 'none')\nos.fork = fork\n{_files.POISON}"
    with playing(tmp_path, source, "Poison") as played:
        with pytest.raises(ProcessesExhausted, match=r"could be forked for 1 s: .* Raise the limit of processes"):
            played.ask(played.processes.open(), {"do": "reset", "row": ROW})


def test_the_limit_of_files_bounds_the_processes(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_open = len(os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (num_open + processes_module.SPARE_FILES + 10, limits[1]))
        with playing(tmp_path, _files.POISON, "Poison") as played:
            numbers = [played.processes.open() for _ in range(16)]
            for number in numbers:
                assert played.ask(number, {"do": "reset", "row": ROW})["messages"]
                played.processes.end(number)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_process_that_floods_its_connection_is_junk_and_later_calls_say_so(tmp_path: Path) -> None:
    source = """
import gc, socket

class Flood:
    def reset(self, **row):
        found = [each for each in gc.get_objects() if isinstance(each, socket.socket) and each.fileno() >= 0]
        for each in found:
            each.setblocking(True)
            each.sendall(b"\\0\\0\\0\\x010" * 1000)

    def step(self, text):
        return "fine", 1.0, True
"""
    with playing(tmp_path, source, "Flood") as played:
        process = played.processes.open()
        found = played.ask(process, {"do": "reset", "row": ROW})
        assert isinstance(found, CallFailure) and found.reason == "junk", found
        assert "answers to no call" in found.text
        assert played.ask(process, {"do": "step", "turn": TURN}) == found


@pytest.mark.parametrize("column", [{("a", 1): 2}, {"a": "\ud800"}, {"a": b"bytes"}, {"a": float("nan")}])
def test_a_row_that_is_no_json_fails_its_own_call(tmp_path: Path, column: dict[Any, Any]) -> None:
    with playing(tmp_path, _files.POISON, "Poison") as played:
        process = played.processes.open()
        row = {**ROW, "columns": {"do": "nothing", "extra": column}}
        found = played.ask(process, {"do": "reset", "row": row})
        if ("a", 1) in column:
            assert isinstance(found, CallFailure) and found.reason == "junk"
            assert found.text.startswith("the request cannot be written as JSON: keys must be str")
        else:
            assert found["messages"]


@pytest.mark.alone
def test_poll_costs_little_with_a_thousand_deadlines(tmp_path: Path) -> None:
    """The cost of a poll is that of the answers that arrived, not of the calls that wait."""
    with playing(tmp_path, _files.POISON, "Poison", max_processes=1) as played:
        processes = played.processes
        played.ask(process := processes.open(), {"do": "reset", "row": ROW})
        turn: dict[str, Any] = {"do": "nothing", "episode": 1}
        for _ in range(1024):
            processes._set_deadline(process, processes.call(process, turn, limit_s=1000.0), 1000.0)
        played.wait(set())
        seconds = []
        for _ in range(50):
            start = time.perf_counter()
            processes.poll(0.0)
            seconds.append(time.perf_counter() - start)
        assert sorted(seconds)[25] < 1e-3
