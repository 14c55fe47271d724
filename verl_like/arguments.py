"""The words behind ``verl-like``: commands, and what each of them takes."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from verl_like.config.readers import key_hint, reader_of
from verl_like.config.reads import reads
from verl_like.config.suggestion import suggestion

COMMANDS = {
    "train": "reinforcement learning",
    "sft": "supervised training",
    "eval": "validate the run's newest checkpoint, that of trainer.resume=PATH, or (resume=never) the model",
    "generate": "write responses to data.val_files, of the same choice of policies as eval",
    "rescore": "score a run's written responses with another reward function: rescore RUN reward.function=f.py:g",
    "export": "write a checkpoint as a Hugging Face folder: export RUN/checkpoints/step_N [OUT], or RUN for its newest",
    "replay": "take a step of a run again, and name the first value that comes out differently: replay RUN --step N",
    "migrate": "make a recipe of verl's, EasyR1's or OpenRLHF's launch script or YAML file: migrate --from verl run.sh",
    "plan": "what a run needs of memory and time, part by part, and what to change when it does not fit",
    "config": "print the composed configuration and where each value came from",
    "help": "what the options of a section are: help rollout, help actor.optim.lr",
    "doctor": "say what is installed, what will be used, what is missing and how to mend it",
    "completion": "print a script by which a shell completes commands, options and values: completion bash",
}
# Those that take a recipe and overrides.
SETTING_COMMANDS = ("train", "sft", "eval", "generate", "plan", "config")
SHELLS = ("bash",)
_PROJECTS = "verl, easyr1 or openrlhf"  # in help texts, which look up no readers
EXAMPLES = {
    "train": (
        "recipes/arithmetic/grpo.yaml actor.optim.lr=1e-5",
        "recipes/arithmetic/grpo.yaml --dry-run algorithm=dapo",
        "--from verl algorithm.adv_estimator=grpo data.train_files=train.parquet ...",
    ),
    "sft": ("recipes/arithmetic/sft.yaml trainer.total_training_steps=100", "recipes/arithmetic/sft.yaml --dry-run"),
    "eval": ("recipes/arithmetic/grpo.yaml rollout.val.n=4",),
    "generate": ("recipes/arithmetic/grpo.yaml rollout.val.temperature=1",),
    "rescore": ("outputs/arithmetic/grpo-seed1 reward.function=mine.py:score",),
    "export": ("outputs/arithmetic/grpo-seed1 my_model",),
    "replay": ("outputs/arithmetic/grpo-seed1 --step 160",),
    "migrate": ("--from verl run.sh", "--from openrlhf --out mine.yaml run.sh 8 /data"),
    "plan": ("recipes/gsm8k/grpo.yaml --device H100 cluster.workers_per_node=8",),
    "config": (
        "recipes/arithmetic/grpo.yaml --docs",
        "--docs rollout",
        "--diff outputs/arithmetic/grpo-seed1 outputs/arithmetic/grpo-seed2",
    ),
    "help": ("rollout", "actor.optim.lr"),
    "doctor": ("--quick",),
    "completion": ("bash > ~/.verl-like.bash",),
}
# What one sets first; `help` tells of each section and option.
FIRST_OPTIONS = (
    "model.path",
    "data.train_files",
    "data.val_files",
    "data.answer_key",
    "data.train_batch_size",
    "rollout.n",
    "rollout.val.n",
    "rollout.val.temperature",
    "actor.optim.lr",
    "algorithm.adv_estimator",
    "reward.function",
    "trainer.total_training_steps",
    "trainer.experiment_name",
    "trainer.resume",
)
EXIT_STATUS = (
    "exit status: 0 done, or stopped in order with all that it takes to go on; 1 failed; 2 wrong input; 130 interrupted"
)


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The command and its arguments; ends the process with status 2 and one line where they cannot be read."""
    words, behind = _peers_apart(argv)
    parser = _parser(words[0] if {"-h", "--help"}.intersection(words) else "")
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        parser.error(f"unknown command {words[0]}{_meant(words[0])}")
    arguments, rest = parser.parse_known_args(words)
    unknown = [word for word in rest if word.startswith("-") or "words" not in arguments]
    if unknown:
        hint = suggestion(unknown[0].partition("=")[0], flags(words[0])) or _flag_hint(words[words.index(unknown[0]) :])
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    if rest or behind:  # argparse takes no words behind an option
        arguments.words += [*rest, *behind]
    return arguments


def _meant(word: str) -> str:
    """What may have been meant by a word that is no command."""
    if "=" in word or word.endswith((".yaml", ".yml")):
        return f"; did you mean verl-like train {word}?"
    return suggestion(word, COMMANDS) or "; see verl-like --help."


def _flag_hint(words: Sequence[str]) -> str:
    """What a flag of another project is called here; the words begin with it."""
    value = words[1] if len(words) > 1 and not words[1].startswith("-") else ""
    return key_hint(words[0].lstrip("-").partition("=")[0], words[0].partition("=")[2] or value)


def _peers_apart(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and those of another project behind ``train --from``, which have options of their own."""
    words = [
        part for word in argv for part in (word.split("=", 1) if word.startswith(("--from=", "--out=")) else [word])
    ]
    if words[:1] == ["migrate"]:
        return _migrating(words), []
    if words[:1] != ["train"] or "--from" not in words:
        return words, []
    place = words.index("--from")
    own = ("--dry-run", "-h", "--help")
    ours = [*words[place : place + 2], *(word for word in words if word in own)]
    return ["train", *ours], [word for word in (*words[1:place], *words[place + 2 :]) if word not in own]


def _migrating(words: Sequence[str]) -> list[str]:
    """The words of ``migrate`` with its own options in front of the script, whose arguments may look like options."""
    ours, rest = ["migrate"], list(words[1:])
    for option in ("--from", "--out"):
        if option in rest[: rest.index("--") if "--" in rest else len(rest)]:
            place = rest.index(option)
            ours += rest[place : place + 2]
            del rest[place : place + 2]
    return [*ours, *rest]


def _parser(asked: str) -> argparse.ArgumentParser:
    """The parser of all commands; ``asked`` is the one whose help is wanted, which takes a while to write."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="verl-like",
        description="Train language models by reinforcement learning.",
        epilog=f"{_examples('train', 'config', 'migrate')}\n\n{EXIT_STATUS}",
        formatter_class=form,
    )
    parser.add_argument("--version", action="version", version=f"verl-like {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, what in COMMANDS.items():
        epilog = _told_below(name) if name == asked else None
        command = commands.add_parser(name, help=what, description=what, epilog=epilog, formatter_class=form)
        ARGUMENTS.get(name, _recipe)(command)
    return parser


def _told_below(command: str) -> str:
    """What stands below a command's options in its help."""
    parts = [_examples(command)]
    if command in SETTING_COMMANDS:
        from verl_like.config.page import help_text

        first = "\n".join(help_text(name) for name in FIRST_OPTIONS if reads(command, name))
        parts += [f"options that are set first:\n{textwrap.indent(first, '  ')}", help_text("", command=command)]
    return "\n\n".join([*parts, EXIT_STATUS])


def _examples(*commands: str) -> str:
    lines = [f"  verl-like {command} {words}" for command in commands for words in EXAMPLES[command]]
    return "\n".join(["examples:", *lines])


def flags(command: str) -> list[str]:
    """The options that a command has."""
    parser = argparse.ArgumentParser(prog=command)
    ARGUMENTS.get(command, _recipe)(parser)
    return sorted(set(re.findall(r"--[a-z-]+", parser.format_help())))


def _version() -> str:
    try:
        return version("verl_like")
    except PackageNotFoundError:  # a checkout that is on the path without being installed
        return "of this checkout"


def _recipe(command: argparse.ArgumentParser) -> None:
    command.add_argument("words", nargs="*", metavar="RECIPE.yaml | key=value", help="a recipe and Hydra overrides")


def _sft(command: argparse.ArgumentParser) -> None:
    _recipe(command)
    command.add_argument("--dry-run", action="store_true", help="check all that can be checked, and stop")


def _project(name: str) -> str:
    """Check that commands of a project can be read."""
    try:
        reader_of(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def _train(command: argparse.ArgumentParser) -> None:
    _sft(command)
    command.add_argument(
        "--from", dest="peer", type=_project, metavar="PROJECT", help=f"whose settings follow: {_PROJECTS}"
    )


def _plan(command: argparse.ArgumentParser) -> None:
    _recipe(command)
    command.add_argument("--device", default="", help="plan for H100, H200, A100, L40S or 4090 instead of this")
    command.add_argument("--response-tokens", type=float, help="mean length; default half of the longest")


def _config(command: argparse.ArgumentParser) -> None:
    _recipe(command)
    command.add_argument(
        "--docs", action="store_true", help="show each option's sentence; a section's name shows it alone"
    )
    command.add_argument("--diff", action="store_true", help="compare two recipes or run folders: config --diff A B")


def _help(command: argparse.ArgumentParser) -> None:
    command.add_argument("section", nargs="?", default="", help="a section, or one option; without it all sections")


def _export(command: argparse.ArgumentParser) -> None:
    checkpoint = "a checkpoints/step_N folder of a run, or a run, whose newest it is"
    command.add_argument("checkpoint", type=Path, help=checkpoint)
    command.add_argument("out", type=Path, nargs="?", help="a new folder; default is RUN/export/step_N")
    command.add_argument("--replace", action="store_true", help="replace the model that lies in OUT")
    command.add_argument(
        "--adapter",
        action="store_true",
        help="write the LoRA adapter alone, as peft reads it (default RUN/export/step_N-adapter), and not a model that "
        "it is added to",
    )


def _replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, help="a run folder")
    command.add_argument("--step", type=int, required=True, help="the step to take again")


def _rescore(command: argparse.ArgumentParser) -> None:
    differs = "what differs from the run's own reward section"
    command.add_argument("run", type=Path, help="a run folder, with responses in samples/")
    command.add_argument("words", nargs="*", metavar="reward.OPTION=VALUE", help=differs)
    command.add_argument("--function", help="short for reward.function=...")
    which = "which of samples/, e.g. 'step_1?.jsonl'; default %(default)s"
    command.add_argument("--files", default="*step_*.jsonl", help=which)
    command.add_argument(
        "--out", type=Path, help="a new file; default is RUN/rescored.jsonl, then rescored_2.jsonl, ..."
    )


def _migrate(command: argparse.ArgumentParser) -> None:
    command.add_argument("--from", dest="peer", required=True, type=_project, metavar="PROJECT", help=_PROJECTS)
    command.add_argument("--out", type=Path, help="where the recipe goes; default is the file's name with .yaml")
    command.add_argument("file", type=Path, metavar="SCRIPT.sh | CONFIG.yaml", help="read, and never run")
    command.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="of the script, its $1 ...; behind --"
    )


def _completion(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=[*SHELLS, "words"], help="whose script; words is for the script to ask by")
    command.add_argument("line", nargs="?", default="", help="for words: the command line up to the cursor")


def _doctor(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quick", action="store_true", help="import neither torch nor an engine, for health checks")


ARGUMENTS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "train": _train,
    "sft": _sft,
    "rescore": _rescore,
    "export": _export,
    "replay": _replay,
    "migrate": _migrate,
    "plan": _plan,
    "config": _config,
    "help": _help,
    "completion": _completion,
    "doctor": _doctor,
}
