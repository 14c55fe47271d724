"""Users' files import the real packages of other projects if `make peers` has installed them into .peers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests._peer_modules import PEERS
from tests.environments import _files
from tests.environments._processes import playing
from tests.environments.test_contracts import contents

pytestmark = [pytest.mark.processes, pytest.mark.slow]  # verl takes ten seconds to import

SHIPPED_WITH_SKYRL = "from skyrl_gym.envs.gsm8k.multi_turn_env import GSM8kMultiTurnEnv\n"


def installed(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    if not (PEERS / package).is_dir():
        pytest.skip(f"`make peers` installs {package} into .peers")
    monkeypatch.syspath_prepend(str(PEERS))


def is_real(source: str, package: str) -> str:
    """Return a file that fails if a package in it is a stand-in."""
    return f"import {package}\nassert {package}.__file__.startswith({str(PEERS)!r})\n{source}"


def test_function_tools_of_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "verl")
    source = is_real(_files.FUNCTION_TOOL, "verl")
    with playing(tmp_path, source) as played:
        process, found = played.reset()
        assert [tool["function"]["name"] for tool in found["tools"]] == ["calculator", "halve"]
        assert contents(played.step(process, calls=(("calculator", {"expression": "(3+4)*5"}),))) == ["35"]


@pytest.mark.parametrize("source", [_files.BASE_TOOL, _files.SCHEMA_OF_PARTS])
def test_tool_classes_of_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    installed(monkeypatch, "verl")
    with playing(tmp_path, is_real(source, "verl")) as played:
        process, found = played.reset()
        assert found["tools"][0]["function"]["name"] == "add"
        assert played.step(process, calls=(("add", {"x": 5}),))["num_tool_errors"] == 0


def test_an_agent_instance_of_openrlhf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "openrlhf")
    with playing(tmp_path, is_real(_files.OPENRLHF, "openrlhf"), "AgentInstance") as played:
        process, _ = played.reset(ground_truth="42")
        assert played.step(process, "it is 42")["is_done"] and played.reward(process) == 1.0


def test_text_environments_of_skyrl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "skyrl_gym")
    with playing(tmp_path, is_real(_files.SKYRL, "skyrl_gym"), "Guess") as played:
        process, _ = played.reset(ground_truth="7")
        assert contents(played.step(process, "6")) == ["no"]
        assert played.step(process, "7")["is_done"] and played.reward(process) == 1.0


def test_an_environment_that_skyrl_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "skyrl_gym")
    with playing(tmp_path, SHIPPED_WITH_SKYRL, "GSM8kMultiTurnEnv") as played:
        process, _ = played.reset(ground_truth="7", extra_info={"max_turns": 3})
        [asked] = contents(played.step(process, "I think it is 7"))
        assert "#### ANSWER" in asked
        assert played.step(process, "#### 7")["is_done"] and played.reward(process) == 1.0
