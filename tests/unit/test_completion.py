"""What a shell completes: by the function that is asked, and by bash itself."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests._terminal import open_terminal
from verl_like.arguments import COMMANDS, SHELLS, parsed
from verl_like.completion import SCRIPTS, words_at

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0  # for a shell that says nothing


def test_the_first_word_is_a_command() -> None:
    assert words_at("verl-like ") == sorted([*COMMANDS, "--help", "--version"])
    assert words_at("verl-like re") == ["replay", "report", "rescore"]
    assert words_at("verl-like nonsense ") == []


def test_keys_come_section_by_section_and_presets_next_to_them() -> None:
    assert words_at("verl-like train alg") == ["algorithm.", "algorithm="]
    inside = words_at("verl-like sft actor.op")
    assert inside == ["actor.optim."]
    assert "actor.optim.lr=" in words_at("verl-like train recipe.yaml actor.optim.")
    assert words_at("verl-like help actor.optim.l") == ["actor.optim.lr"]
    assert words_at("verl-like export actor") == [], "a path, which the shell itself completes"


def test_values_come_where_they_are_few() -> None:
    assert words_at("verl-like train trainer.on_stall=") == [
        f"trainer.on_stall={action}" for action in ("abort", "report", "restart")
    ]
    assert words_at("verl-like train trainer.async_save=t") == ["trainer.async_save=true"]
    assert "algorithm=dapo" in words_at("verl-like config algorithm=d")
    assert words_at("verl-like train trainer.seed=") == words_at("verl-like train no.such=") == []


def test_options_are_those_of_the_command() -> None:
    assert words_at("verl-like train --") == ["--dry-run", "--from", "--help"]
    assert words_at("verl-like migrate --from ") == ["easyr1", "openrlhf", "verl"]
    assert "--diff" in words_at("verl-like config recipe.yaml --d")


def test_recipes_and_folders_that_may_hold_some_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("run.yaml", "run.py", "runs/one.yaml", ".runs.yaml"):
        (tmp_path / name).touch()
    assert words_at("verl-like train run") == ["run.yaml", "runs/"]
    assert words_at("verl-like train runs/") == words_at("verl-like train runs/o") == ["runs/one.yaml"]


def test_every_shell_that_is_offered_has_a_script() -> None:
    assert set(SCRIPTS) == set(SHELLS)
    assert parsed(["completion", "words", "verl-like train a=b --"]).line == "verl-like train a=b --"


def bash_environment(folder: Path) -> dict[str, str]:
    """A shell's in which the command is to be found; the folder has the script too."""
    command = folder / "verl-like"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m verl_like "$@"\n')
    command.chmod(0o755)
    (folder / "script").write_text(SCRIPTS["bash"])
    return {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "TERM": "dumb", "PS1": "$ "}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("breaks", "expected"), [(" =", "abort"), (" ", "trainer.on_stall=abort")], ids=["as-usual", "equals-is-no-break"]
)
def test_the_function_for_bash_gives_what_comes_after_the_last_break(
    breaks: str, expected: str, tmp_path: Path
) -> None:
    call = (
        f"source {tmp_path}/script; COMP_LINE='verl-like train trainer.on_stall=ab'; COMP_POINT=${{#COMP_LINE}}; "
        f"COMP_WORDBREAKS='{breaks}'; _verl_like {tmp_path}/verl-like; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    message = subprocess.run(
        ["bash", "-c", call], env=bash_environment(tmp_path), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert message.stdout.splitlines() == [expected]


def typed_in_bash(folder: Path, *lines: str) -> list[str]:
    """Return the words of each line after a TAB at its end, in an interactive bash."""
    environment = bash_environment(folder)
    ours, peer = open_terminal()
    bash = ["bash", "--noprofile", "--norc", "-i"]
    with subprocess.Popen(bash, stdin=peer, stdout=peer, stderr=peer, env=environment, cwd=ROOT) as shell:
        os.close(peer)
        show = "\x01printf '<%s>\\n' \x05"  # at the beginning of the line, then back to its end
        keys = [f"source {folder}/script", *(f"{line}\t{show}" for line in lines), "exit"]
        os.write(ours, "\n".join([*keys, ""]).encode())
        message = b""
        while select.select([ours], [], [], WAIT_S)[0]:
            try:
                message += os.read(ours, 4096)
            except OSError:  # the shell has ended
                break
        shell.kill()
    os.close(ours)
    return re.findall(r"<([^<>%\r\n]*)>", message.decode())


@pytest.mark.processes
def test_bash_completes_commands_options_keys_values_and_recipes(tmp_path: Path) -> None:
    lines = {
        "verl-like tra": ["verl-like", "train"],
        "verl-like train --dry": ["verl-like", "train", "--dry-run"],
        "verl-like train trainer.async_s": ["verl-like", "train", "trainer.async_save="],
        "verl-like train trainer.on_stall=ab": ["verl-like", "train", "trainer.on_stall=abort"],
        "verl-like train recipes/arithmetic/gr": ["verl-like", "train", "recipes/arithmetic/grpo.yaml"],
    }
    assert typed_in_bash(tmp_path, *lines) == [word for words in lines.values() for word in words]
