"""The files of the recipes, as an episode's process loads and calls them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.environments.test_contracts import Playing, contents
from verl_like.environments.processes import CallFailure, EnvironmentProcesses, Loaded, ProcessSettings

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"
OTHER_PYTHON = ROOT / ".peers/environments/bin/python"

pytestmark = pytest.mark.processes
needs_other_python = pytest.mark.skipif(
    not OTHER_PYTHON.exists(), reason="`make peers` installs gem and verifiers into .peers/environments"
)

Play = Callable[..., tuple[Playing, Loaded]]


@pytest.fixture
def play() -> Iterator[Play]:
    opened: list[EnvironmentProcesses] = []

    def of(**settings: Any) -> tuple[Playing, Loaded]:
        processes = EnvironmentProcesses(ProcessSettings(**settings))
        processes.start()
        opened.append(processes)
        return Playing(processes), processes.load()

    yield of
    for processes in opened:
        processes.close()


def test_programs_run_without_network_and_files(play: Play, tmp_path: Path) -> None:
    (secret := tmp_path / "secret").write_text("secret")
    server = socket.create_server(("127.0.0.1", 0))
    programs = [
        "print(sum(range(10)))",
        "x = 1",
        "1 / 0",
        f"print(open({str(secret)!r}).read())",
        f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))",
        "import os; os.fork()",
    ]
    playing, _ = play(tools=f"{RECIPES}/code_agent/tools.py")
    process, found = playing.reset()
    assert [tool["function"]["name"] for tool in found["tools"]] == ["python"]
    step = playing.step(process, calls=tuple(("python", {"code": code}) for code in programs))
    server.close()
    assert not isinstance(step, CallFailure), step
    printed, silent, *failed = contents(step)
    assert printed == "45" and silent == "The program printed nothing. Use print."
    assert failed[0].endswith("ZeroDivisionError: division by zero")
    for text in failed[1:]:
        assert "Error" in text and "secret\n" not in text
    assert step["num_tool_errors"] == 0, "what a program does wrong is a result"


def test_a_process_serves_another_episode_after_programs_have_run(play: Play) -> None:
    playing, _ = play(tools=f"{RECIPES}/code_agent/tools.py")
    pids = set()
    for _ in range(2):
        process, _ = playing.reset()
        playing.step(process, calls=(("python", {"code": "print(1)"}),))
        playing.reward(process)
        pids.add(playing.processes._processes[process].fork)
        playing.processes.end(process)
    assert len(pids) == 1


@pytest.mark.slow
@needs_other_python
def test_a_game_of_gem_begins_with_the_recipes_system_message(play: Play) -> None:
    from recipes.gem.prepare import rows

    playing, loaded = play(path=f"{RECIPES}/gem/game.py:make", python=str(OTHER_PYTHON))
    assert not loaded.is_agent
    process = playing.processes.open()
    row = {"messages": rows(0, 1)[0]["prompt"], "columns": {"game": 0}, "seed": 3}
    found = playing.ask(process, {"do": "reset", "row": row})
    assert [message["role"] for message in found["messages"]] == ["system", "user"]
    assert "Guess The Number" in found["messages"][1]["content"]
    assert playing.step(process, "no guess")["is_done"]


@pytest.mark.slow
@needs_other_python
def test_the_taskset_of_verifiers_is_loaded_as_an_agent_program(play: Play) -> None:
    _, loaded = play(path=f"{RECIPES}/verifiers/agent.py:run", python=str(OTHER_PYTHON))
    assert loaded.is_agent
