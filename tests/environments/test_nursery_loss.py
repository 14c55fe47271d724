"""A nursery that is killed or stopped is replaced; what had a process fails, and what waits for one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environments import _files
from tests.environments._processes import comes_true, playing
from tests.environments.test_contracts import nursery_of
from verl_like.environments import processes as processes_of_environments
from verl_like.environments.processes import MAX_RESTARTS, CallAnswer, CallFailure, EnvironmentProcesses, NurseryLost

pytestmark = [pytest.mark.processes, pytest.mark.alone]
RESET = {"do": "reset", "episode": 1, "row": {"messages": [], "columns": {"do": ""}, "seed": 1}}


def collected(processes: EnvironmentProcesses, calls: set[int]) -> dict[int, CallAnswer]:
    found: dict[int, CallAnswer] = {}

    def all_have_arrived() -> bool:
        found.update({answer.call: answer for answer in processes.poll(0.1)})
        return calls <= found.keys()

    assert comes_true(all_have_arrived)
    return found


@pytest.mark.parametrize(
    ("fault", "says"), [("kill", "ended with code -9"), ("suspend", "has not forked a process within 1 s")]
)
def test_a_lost_nursery_fails_the_episodes_with_a_process_and_no_others(
    tmp_path: Path, fault: str, says: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes_of_environments, "FORK_TIMEOUT_S", 1.0)
    with playing(tmp_path, _files.POISON, "Poison", max_processes=2) as played:
        processes = played.processes
        running, _ = played.reset(do="hang")
        turn = {"text": "x", "message": {"role": "assistant", "content": "x"}}
        hanging = processes.call(running, {"do": "step", "episode": 1, "turn": turn}, limit_s=100.0)
        getattr(nursery_of(processes), fault)()
        waiting = {processes.call(processes.open(), RESET, limit_s=20.0) for _ in range(2)}
        found = collected(processes, {hanging, *waiting})
        failure = found[hanging].failure
        assert failure is not None and failure.reason == "crash"
        assert [found[call].failure for call in waiting] == [None, None]
        later = played.ask(running, {"do": "step", "turn": turn})
        assert isinstance(later, CallFailure) and later.reason == "crash"
    assert "(restart 1 of at most 3)" in caplog.text and says in caplog.text


def test_an_idle_process_of_a_lost_nursery_serves_no_other_episode(tmp_path: Path) -> None:
    with playing(tmp_path, _files.POISON, "Poison") as played:
        process, _ = played.reset(do="")
        played.step(process, "x")
        played.reward(process)
        played.processes.end(process)
        before = played.processes._nursery.subreaper_pid
        nursery_of(played.processes).kill()
        assert comes_true(lambda: played.processes.poll(0.1) or played.processes._nursery.subreaper_pid != before)
        played.reset(do="")


def test_a_nursery_that_is_lost_too_often_is_an_error_of_the_run(tmp_path: Path) -> None:
    with playing(tmp_path, _files.POISON, "Poison") as played:
        processes = played.processes
        for _ in range(MAX_RESTARTS):
            before = processes._nursery.subreaper_pid
            nursery_of(processes).kill()
            assert comes_true(lambda: processes.poll(0.1) or processes._nursery.subreaper_pid != before)  # noqa: B023
        nursery_of(processes).kill()
        with pytest.raises(NurseryLost, match=r"loaded .*user.py:Poison ended with code -9.* again 3 times"):
            comes_true(lambda: bool(processes.poll(0.1)))
        with pytest.raises(NurseryLost, match="ended with code -9"):
            processes.poll(0.0)


def test_a_file_that_cannot_be_loaded_again_is_an_error_of_the_run(tmp_path: Path) -> None:
    with playing(tmp_path, _files.POISON, "Poison") as played:
        (tmp_path / "user.py").write_text("raise RuntimeError('edited')")
        nursery_of(played.processes).kill()
        with pytest.raises(NurseryLost, match=r"(?s)ended with code -9.*It cannot be started again: .*edited"):
            comes_true(lambda: bool(played.processes.poll(0.1)))


def test_a_lost_nursery_reports_what_it_printed_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = "import os, signal, sys\n" + _files.POISON + "\n    def reset(self, **row):\n"
    source += "        sys.stderr.write('out of luck\\n')\n        os.kill(os.getppid(), 9)\n"
    with playing(tmp_path, source, "Poison") as played:
        played.processes.call(played.processes.open(), RESET, limit_s=20.0)
        assert comes_true(lambda: not played.processes.poll(0.1) and "restart 1" in caplog.text)
    assert "ended with code -9. It printed last:\nout of luck" in caplog.text
