"""A process serves several episodes in turn, unless one has left something."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.environments._processes import comes_true, is_running, playing
from tests.environments.test_contracts import Playing

pytestmark = pytest.mark.processes

SOURCE = """
import asyncio, os, random, subprocess, threading, time

class Leaves:
    def reset(self, leaves):
        self.leaves = leaves

    async def step(self, text):
        if self.leaves == "thread":
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        elif self.leaves == "task":
            self.task = asyncio.create_task(asyncio.sleep(60))
            globals()["kept"] = self.task
        elif self.leaves == "process":
            subprocess.Popen(["sleep", "60"])
        elif self.leaves == "error":
            raise ValueError("no")
        return f"{os.getpid()} {random.random()}", 0.0, False
"""
TURN = {"text": "x", "message": {"role": "assistant", "content": "x"}}


def episode(played: Playing, leaves: str = "nothing", *, seed: int = 1) -> tuple[int, float]:
    """Play an episode to its end; return the id of its process and a random number of it."""
    number = played.processes.open()
    row: dict[str, Any] = {"messages": [], "columns": {"leaves": leaves}, "seed": seed}
    played.ask(number, {"do": "reset", "row": row})
    [message] = played.ask(number, {"do": "step", "turn": TURN})["messages"]
    played.ask(number, {"do": "finish"})
    played.processes.end(number)
    pid, drawn = message["content"].split()
    return int(pid), float(drawn)


def test_a_process_serves_the_episodes_that_come_after_one_another(tmp_path: Path) -> None:
    with playing(tmp_path, SOURCE, "Leaves", episodes_per_process=3) as played:
        pids = [episode(played)[0] for _ in range(4)]
        assert pids[0] == pids[1] == pids[2] != pids[3], "three episodes a process"
        assert comes_true(lambda: not is_running(pids[0])) and is_running(pids[3])


@pytest.mark.parametrize("left", ["thread", "task", "process"])
def test_a_process_in_which_something_is_left_serves_no_other_episode(tmp_path: Path, left: str) -> None:
    with playing(tmp_path, SOURCE, "Leaves") as played:
        pid, _ = episode(played, left)
        assert episode(played)[0] != pid and comes_true(lambda: not is_running(pid))


def test_an_episode_that_has_not_finished_takes_its_process_with_it(tmp_path: Path) -> None:
    with playing(tmp_path, SOURCE, "Leaves") as played:
        number = played.processes.open()
        played.ask(number, {"do": "reset", "row": {"messages": [], "columns": {"leaves": ""}, "seed": 1}})
        [message] = played.ask(number, {"do": "step", "turn": TURN})["messages"]
        played.processes.end(number)
        assert comes_true(lambda: not is_running(int(message["content"].split()[0])))


def test_random_numbers_follow_the_seed_and_not_the_episodes_before(tmp_path: Path) -> None:
    with playing(tmp_path, SOURCE, "Leaves") as played:
        first, second, third = episode(played, seed=5), episode(played, seed=6), episode(played, seed=5)
        assert first[1] == third[1] != second[1] and first[0] == second[0] == third[0]


def test_an_idle_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with playing(tmp_path, SOURCE, "Leaves") as played:
        pid, _ = episode(played)
        os.kill(pid, signal.SIGKILL)
        assert comes_true(lambda: not is_running(pid))
        played.processes.poll(0.2)
        assert episode(played)[0] != pid
