"""``verl-like play --by-hand``: an episode whose turns are typed, through a pipe and at a terminal."""

from __future__ import annotations

import io
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recipes.colours.model import write_model
from recipes.colours.prepare import rows
from recipes.small_chat import chat_tokenizer
from tests._terminal import open_terminal
from tests.environments._processes import comes_true, is_running
from verl_like.cli import main

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0  # imports take most of it on a busy machine
FILE = """
class Game:
    def reset(self, secret):
        self.secret = secret

    def step(self, text):
        if text == "crash":
            raise RuntimeError("it broke")
        if text == str(self.secret):
            return "", 1.0, True
        return "higher", 0.25, False

async def agent(base_url, prompt):
    return 1.0
"""
TOOLS = '''
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b
'''
REWARD = """
def ends_with_answer(completions, answer, **columns):
    return [float(messages[-1]["content"] == right) for messages, right in zip(completions, answer)]
"""

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment, tools, a reward, a tokenizer without weights, and two prompts."""
    found = tmp_path_factory.mktemp("play")
    for name, text in {"game.py": FILE, "tools.py": TOOLS, "reward.py": REWARD}.items():
        (found / name).write_text(text)
    chat_tokenizer([*'abcdefghijklmnopqrstuvwxyz0123456789 {}":,_/', "<tool_call>", "</tool_call>"]).save_pretrained(
        found / "model"
    )
    (found / "model/config.json").write_text('{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}')
    rows = {"prompt": ["first", "second"], "secret": [3, 7], "answer": ["3", "7"]}
    pq.write_table(pa.table(rows), found / "val.parquet")
    return found


def words(folder: Path, *more: str) -> list[str]:
    return [
        "play",
        "--by-hand",
        f"model.path={folder}/model",
        f"data.val_files=[{folder}/val.parquet]",
        "data.max_response_length=256",
        "data.max_prompt_length=256",
        "environment.max_turns=3",
        *more,
    ]


class Played:
    """Plays an episode whose typed text comes through a pipe, and then ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._monkeypatch, self._capsys, self._folder = monkeypatch, capsys, folder

    def __call__(self, typed: str, *more: str) -> str:
        """Return what is printed."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        status = main(words(self._folder, *more))
        found = self._capsys.readouterr()
        assert status == 0, found.err
        return found.out


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> Played:
    return Played(monkeypatch, capsys, folder)


def facts(output: str) -> dict[str, str]:
    """Return the lines after the episode, by name."""
    return dict(re.findall(r"^(\w+(?: \w+)?) {3,}(.+)$", output, re.MULTILINE))


def test_typed_turns_are_answered_and_rewarded(folder: Path, played: Played) -> None:
    found = played("5\n7\n", f"environment.path={folder}/game.py:Game", "--row", "1")
    assert "[user]\n  second\n" in found and "[assistant]\n  5\n[user]\n  higher\n" in found
    assert "reward of turn 1: 0.25" in found
    shown = facts(found)
    assert shown["finish reason"] == "stop" and shown["status"] == "ok"
    assert shown["reward"] == shown["score"] == "1.25"
    assert shown["turns"] == "2, with rewards 0.25, 1"
    # <user>second<end><assistant> is 9 tokens; 5<end>, <user>higher<end><assistant>, 7<end> are 2 + 9 + 2.
    assert shown["tokens"] == "9 in the first prompt, 13 after it, of which 4 in turns"


def test_typed_calls_run_the_tools_and_reward_functions_score(folder: Path, played: Played) -> None:
    call = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>\n'
    found = played(
        f"<tool_call>add</tool_call>\n{call}3\n",
        f"environment.tools={folder}/tools.py",
        f"reward.function={folder}/reward.py:ends_with_answer",
    )
    assert "  add(a, b): Add two numbers." in found
    assert "Error: the tool call is not valid JSON" in found
    assert '  calls add({"a": 1, "b": 2})\n[tool]\n  3\n' in found
    shown = facts(found)
    assert shown["tool calls"] == "1, 0 with an error; 1 malformed"
    assert shown["reward"] == "none from the environment" and shown["score"] == "1"


def test_a_failure_of_the_environment_is_shown_with_its_traceback(folder: Path, played: Played) -> None:
    found = played("crash\n", f"environment.path={folder}/game.py:Game")
    assert "status          error: RuntimeError: it broke" in found
    assert 'game.py", line 8' in found
    assert facts(found)["score"] == "none"


def test_the_end_of_a_pipe_ends_the_episode(folder: Path, played: Played) -> None:
    assert "left after 1 turns" in played("5\n", f"environment.path={folder}/game.py:Game")


def arrived(terminal: int, deadline: float, shown: bytes) -> bytes:
    """Return what a program has written to its terminal, once there is something."""
    assert select.select([terminal], [], [], max(deadline - time.monotonic(), 0.0))[0], shown
    return os.read(terminal, 4096)


@pytest.mark.parametrize(
    ("key", "status"),
    [pytest.param(b"\x03", 130, id="Ctrl-C"), pytest.param(b"\x04", 0, id="Ctrl-D", marks=pytest.mark.slow)],
)
def test_a_key_at_the_terminal_ends_all_processes(folder: Path, key: bytes, status: int) -> None:
    own, theirs = open_terminal()
    # A separate session, with the terminal.
    command = ["setsid", "--ctty", sys.executable, "-m", "verl_like"]
    command += words(folder, f"environment.path={folder}/game.py:Game")
    program = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT)
    os.close(theirs)
    try:
        shown, deadline = b"", time.monotonic() + LIMIT_S
        while b"turn 1, at most" not in shown:
            shown += arrived(own, deadline, shown)
        children = [child.pid for child in psutil.Process(program.pid).children(recursive=True)]
        assert children, "the environment runs in a process"
        with suppress(OSError):  # the program has closed the terminal
            while time.monotonic() < deadline:
                os.write(
                    own, key
                )  # again, as a person would: input() may miss the one that comes right after its prompt
                while select.select([own], [], [], 2.0)[0]:
                    shown += os.read(own, 4096)
        assert program.wait(LIMIT_S) == status, shown
        assert comes_true(lambda: not any(map(is_running, children)))
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        os.close(own)


def test_without_an_environment_the_option_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(folder)) == 2
    reported = capsys.readouterr().err
    assert "environment.path and environment.tools are empty" in reported
    assert "Set environment.path=path/to/file.py:name" in reported and "verl-like generate" in reported


def test_without_prompts_the_option_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(folder, f"environment.path={folder}/game.py:Game", "data.val_files=[]")) == 2
    assert "Set data.val_files=[path/to/val.parquet]" in capsys.readouterr().err


def test_a_row_that_is_not_there_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(folder, f"environment.path={folder}/game.py:Game", "--row", "2")) == 2
    assert "--row is 2, but there are 2 prompts. Name one of 0 to 1." in capsys.readouterr().err


def test_an_agent_program_is_not_played_by_hand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(folder, f"environment.path={folder}/game.py:agent")) == 2
    assert "an agent program, which makes its own requests" in capsys.readouterr().err


def test_pictures_are_shown_by_their_size(tmp_path: Path, played: Played) -> None:
    write_model(tmp_path / "model", 0)
    pq.write_table(pa.table(rows(1, 0)), tmp_path / "val.parquet")
    gallery = f"environment.path={ROOT}/recipes/colours/gallery.py:Gallery"
    found = played(
        "red\nblue\n", gallery, f"model.path={tmp_path}/model", f"data.val_files=[{tmp_path}/val.parquet]",
        "data.answer_key=answer", "data.max_prompt_length=24", "environment.max_turns=2",
    )  # fmt: skip
    assert found.count("[user]\n  [picture 56 x 56]Which colour is this ?\n") == 2
    assert facts(found)["status"] == "ok" and facts(found)["tokens"].startswith("12 in the first prompt, ")
