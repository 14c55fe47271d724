"""The programs of other projects: which of them a command starts, and the words after it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from verl_like_migrate.tables import table

# Project -> its programs, each with the command of verl_like that does the same. A program is the last part of a module
# (verl.trainer.main_ppo, and those of recipes and forks) or of a file.
PROGRAMS = {
    "verl": {"main_ppo": "train", "main_dapo": "train"},
    "easyr1": {"verl.trainer.main": "train"},
    "openrlhf": {
        "train_ppo_ray": "train",
        "train_ppo": "train",
        "train_sft": "sft",
        "train_dpo": "dpo",
        "train_rm": "rm",
    },
}
_SUPERVISED = "use `verl-like sft RECIPE.yaml`, which trains on answers, conversations and texts."
_GENERATION = "use `verl-like generate RECIPE.yaml data.val_files=FILE`, which writes responses to the rows of a file."
_PREFERENCES = "use `verl-like dpo RECIPE.yaml` or `verl-like rm RECIPE.yaml`, which train on pairs of responses."
_SINGLE = "use `verl-like dpo RECIPE.yaml 'dpo.losses={kto: 1}'`, which trains on single responses with a label."
# Project -> its programs for other tasks, each with its replacement in verl_like.
OTHER_PROGRAMS: dict[str, dict[str, str]] = {
    "verl": {
        "fsdp_sft_trainer": _SUPERVISED,
        "sft_trainer": _SUPERVISED,
        "sft_trainer_ray": _SUPERVISED,
        "main_generation": _GENERATION,
        "main_generation_server": _GENERATION,
        "main_eval": "use `verl-like rescore RUN`, which scores saved responses again.",
        "model_merger": "use `verl-like export RUN`, which writes the policy as a Hugging Face folder.",
    },
    "easyr1": {"model_merger": "use `verl-like export RUN`, which writes the policy as a Hugging Face folder."},
    "openrlhf": {"batch_inference": _GENERATION, "train_prm": _PREFERENCES, "train_kto": _SINGLE},
}
STARTER = re.compile(r"python|pypy|torchrun|deepspeed|accelerate|uv$|poetry$|-m$|--module$")
FEWEST_SETTINGS = 3  # of a program with an unknown name
ONLY_MENTION = ("echo", "printf", "pkill", "pgrep", "killall", "grep", "egrep", "ps")  # these only mention a program


class Run(NamedTuple):
    """A run that a command starts: the command of verl_like for it, and the words after the program."""

    job: str
    words: list[str]


def jobs(peer: str) -> tuple[str, ...]:
    """Return the commands of verl_like that some program of the project corresponds to."""
    return tuple(dict.fromkeys(PROGRAMS[peer].values()))


def run_of(command: Sequence[str], peer: str) -> Run | None:
    """Return the run if a command starts a training program of that project, else None."""
    started = _started(command, PROGRAMS[peer])
    return None if started is None else Run(PROGRAMS[peer][started[1]], list(command[started[0] + 1 :]))


def other_program(command: Sequence[str], peer: str) -> tuple[str, str] | None:
    """Return the program of that project that a command starts for another task, and its replacement in verl_like."""
    started = _started(command, OTHER_PROGRAMS[peer])
    return None if started is None else (started[1], OTHER_PROGRAMS[peer][started[1]])


def _started(command: Sequence[str], programs: Iterable[str]) -> tuple[int, str] | None:
    """Return the index of the word that names one of the programs, and which one the command starts."""
    if not command or Path(command[0]).name in ONLY_MENTION:
        return None
    for index, word in enumerate(command):
        name = word.removesuffix(".py").replace("/", ".")
        for program in programs:
            if name == program or name.endswith(f".{program}"):
                is_started = index == 0 or any(STARTER.match(Path(before).name) for before in command[:index])
                return (index, program) if is_started else None
    return None


def with_own_program(command: Sequence[str], peer: str) -> tuple[Run, str] | None:
    """Return the run of a user's program that takes that project's settings, and the program.

    The job is the one whose table knows the most of these settings. Return None if the command starts no such program.
    """
    start = next((index for index, word in enumerate(command) if STARTER.match(Path(word).name)), len(command))
    program = next((index for index in range(start + 1, len(command)) if not command[index].startswith("-")), start)
    words = list(command[program + 1 :])
    known = {job: sum(_names_setting(word, peer, job) for word in words) for job in jobs(peer)}
    job = max(known, key=lambda each: known[each])
    if known[job] < FEWEST_SETTINGS:
        return None
    return Run(job, words), " ".join(command[start : program + 1])


def _names_setting(word: str, peer: str, job: str) -> bool:
    if peer == "openrlhf":
        key = word.removeprefix("--").partition("=")[0].replace("-", "_") if word.startswith("--") else ""
    else:
        key = word.lstrip("+~").partition("=")[0]
        key = key if "." in key else ""
    known = table(peer, job)
    return bool(key) and known.entry(known.called(key)[0]) is not None
