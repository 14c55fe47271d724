"""Parse the words after ``verl-like``: commands and their arguments."""

from __future__ import annotations

import argparse
import math
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
    "dpo": "training on pairs of responses, of which one is preferred, or on single labelled ones",
    "rm": "training of a reward model on such pairs",
    "eval": "validate the run's newest checkpoint, the one of trainer.resume=PATH, or (resume=never) the model",
    "generate": "write responses to data.val_files; the policy is selected as for eval",
    "play": "run one episode with the recipe's environment in the terminal, by the model or (--by-hand) by you",
    "rescore": "score a run's written responses with another reward function: rescore RUN reward.function=f.py:g",
    "export": "write a checkpoint as a Hugging Face folder: export RUN/checkpoints/step_N [OUT], or RUN for its newest",
    "report": "write a run, or several, as one page that opens without a server: report RUN [RUN ...]",
    "watch": "show a run in the terminal while it trains, after it, or from its copy in a remote folder: watch RUN",
    "serve": "show the report of a run, or of several, in a browser and follow them while they train: serve RUN",
    "compare": "print what differs between runs, and test the difference of their final scores: compare RUN RUN",
    "replay": "repeat a step of a run and name the first value that differs: replay RUN --step N",
    "scale": "give a run with separate engines another number of rollout workers: scale RUN rollout=N",
    "migrate": "translate a launch script or YAML file of verl, EasyR1 or OpenRLHF: migrate --from verl run.sh",
    "plan": "print the memory and time that each part of a run needs, and what to change if it does not fit",
    "config": "print the composed configuration and the origin of each value",
    "help": "describe the options of a section: help rollout, help actor.optim.lr",
    "doctor": "report what is installed, what runs will use, what is missing and how to install it",
    "completion": "print a script that makes a shell complete commands, options and values: completion bash",
}
# Commands that take a recipe and overrides.
ON_ROWS = ("sft", "dpo", "rm")  # commands that train on given rows
SETTING_COMMANDS = ("train", *ON_ROWS, "eval", "generate", "play", "plan", "config")
SHELLS = ("bash",)
_PROJECTS = "verl, easyr1 or openrlhf"  # in help texts, which do not load the readers
EXAMPLES = {
    "train": (
        "recipes/arithmetic/grpo.yaml actor.optim.lr=1e-5",
        "recipes/arithmetic/grpo.yaml --dry-run algorithm=dapo",
        "--from verl algorithm.adv_estimator=grpo data.train_files=train.parquet ...",
    ),
    "sft": ("recipes/arithmetic/sft.yaml trainer.total_training_steps=100", "recipes/arithmetic/sft.yaml --dry-run"),
    "dpo": ("recipes/preferences/dpo.yaml dpo.beta=0.05", "recipes/preferences/kto.yaml"),
    "rm": ("recipes/preferences/rm.yaml rm.center_rewards_coefficient=0.01",),
    "eval": ("recipes/arithmetic/grpo.yaml rollout.val.n=4",),
    "generate": ("recipes/arithmetic/grpo.yaml rollout.val.temperature=1",),
    "play": (
        "recipes/guess_number/grpo.yaml --by-hand",
        "recipes/guess_number/grpo.yaml --row 3 --seed 2",
        "recipes/calculator/grpo.yaml trainer.resume=never rollout.val.temperature=0",
    ),
    "rescore": ("outputs/arithmetic/grpo-seed1 reward.function=mine.py:score",),
    "export": ("outputs/arithmetic/grpo-seed1 my_model",),
    "report": (
        "outputs/arithmetic/grpo-seed1",
        "outputs/arithmetic/grpo-seed1 outputs/arithmetic/grpo-seed2 --out both.html",
    ),
    "watch": (
        "outputs/arithmetic/grpo-seed1",
        "outputs/arithmetic/grpo-seed1 --follow",
        "s3://bucket/runs/grpo-seed1 --every 30",
    ),
    "serve": ("outputs/arithmetic/grpo-seed1", "outputs/arithmetic/grpo-seed1 --port 8000"),
    "compare": (
        "outputs/arithmetic/grpo-seed1 outputs/arithmetic/ppo-seed1",
        "outputs/arithmetic/grpo-seed1 outputs/arithmetic/grpo-seed2 outputs/arithmetic/ppo-seed1 --out all.html",
    ),
    "replay": ("outputs/arithmetic/grpo-seed1 --step 160",),
    "scale": ("outputs/arithmetic/grpo-seed1 rollout=2",),
    "migrate": ("--from verl run.sh", "--from openrlhf --out mine.yaml run.sh 8 /data"),
    "plan": (
        "recipes/gsm8k/grpo.yaml --device H100 cluster.workers_per_node=8",
        "dpo recipes/preferences/dpo.yaml --device H100",
    ),
    "config": (
        "recipes/arithmetic/grpo.yaml --docs",
        "--docs rollout",
        "--diff outputs/arithmetic/grpo-seed1 outputs/arithmetic/grpo-seed2",
    ),
    "help": ("rollout", "actor.optim.lr"),
    "doctor": ("--quick",),
    "completion": ("bash > ~/.verl-like.bash",),
}
# Options that users set first; `help` describes every section and option.
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
EXIT_STATUS = "exit status: 0 done, or stopped cleanly and able to continue; 1 failed; 2 wrong input; 130 interrupted"


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Return the command and its arguments; end the process with status 2 and one line if they are invalid."""
    words, foreign = _split_foreign(argv)
    parser = _parser(words[0] if {"-h", "--help"}.intersection(words) else "")
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        parser.error(f"unknown command {words[0]}{_meant(words[0])}")
    arguments, rest = parser.parse_known_args(words)
    unknown = [word for word in rest if word.startswith("-") or "words" not in arguments]
    if unknown:
        hint = suggestion(unknown[0].partition("=")[0], flags(words[0])) or _flag_hint(words[words.index(unknown[0]) :])
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    if rest or foreign:  # argparse accepts no words after an option
        arguments.words += [*rest, *foreign]
    return arguments


def _meant(word: str) -> str:
    """Return a hint on a word that is not a command."""
    if "=" in word or word.endswith((".yaml", ".yml")):
        return f"; did you mean verl-like train {word}?"
    return suggestion(word, COMMANDS) or "; see verl-like --help."


def _flag_hint(words: Sequence[str]) -> str:
    """Return a hint on the first word, a flag of another project."""
    value = words[1] if len(words) > 1 and not words[1].startswith("-") else ""
    return key_hint(words[0].lstrip("-").partition("=")[0], words[0].partition("=")[2] or value)


def _split_foreign(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our words, and those after ``--from``, which are options of another project."""
    words = [
        part for word in argv for part in (word.split("=", 1) if word.startswith(("--from=", "--out=")) else [word])
    ]
    if words[:1] == ["migrate"]:
        return _migrating(words), []
    if not words or words[0] not in ("train", *ON_ROWS) or "--from" not in words:
        return words, []
    index = words.index("--from")
    own = ("--dry-run", "-h", "--help")
    ours = [*words[index : index + 2], *(word for word in words if word in own)]
    return [words[0], *ours], [word for word in (*words[1:index], *words[index + 2 :]) if word not in own]


def _migrating(words: Sequence[str]) -> list[str]:
    """Move the options of ``migrate`` before the script, whose arguments may look like options."""
    ours, rest = ["migrate"], list(words[1:])
    for option in ("--from", "--out"):
        if option in rest[: rest.index("--") if "--" in rest else len(rest)]:
            index = rest.index(option)
            ours += rest[index : index + 2]
            del rest[index : index + 2]
    return [*ours, *rest]


def _parser(asked: str) -> argparse.ArgumentParser:
    """Return the parser of all commands; only ``asked``, the command whose help is printed, gets its slow epilog."""
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
        epilog = _epilog(name) if name == asked else None
        command = commands.add_parser(name, help=what, description=what, epilog=epilog, formatter_class=form)
        ARGUMENTS.get(name, _recipe)(command)
    return parser


def _epilog(command: str) -> str:
    """Return the text below a command's options in its help."""
    parts = [_examples(command)]
    if command in SETTING_COMMANDS:
        from verl_like.config.page import help_text

        first = "\n".join(help_text(name) for name in FIRST_OPTIONS if reads(command, name))
        parts += [f"options to set first:\n{textwrap.indent(first, '  ')}", help_text("", command=command)]
    return "\n\n".join([*parts, EXIT_STATUS])


def _examples(*commands: str) -> str:
    lines = [f"  verl-like {command} {words}" for command in commands for words in EXAMPLES[command]]
    return "\n".join(["examples:", *lines])


def flags(command: str) -> list[str]:
    """Return the flags of a command."""
    parser = argparse.ArgumentParser(prog=command)
    ARGUMENTS.get(command, _recipe)(parser)
    return sorted(set(re.findall(r"--[a-z-]+", parser.format_help())))


def _version() -> str:
    try:
        return version("verl_like")
    except PackageNotFoundError:  # a checkout that is on the path but not installed
        return "of this checkout"


def _recipe(command: argparse.ArgumentParser) -> None:
    command.add_argument("words", nargs="*", metavar="RECIPE.yaml | key=value", help="a recipe and Hydra overrides")


def _project(name: str) -> str:
    """Check that commands of a project can be read."""
    try:
        reader_of(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def _train(command: argparse.ArgumentParser) -> None:
    _recipe(command)
    command.add_argument(
        "--dry-run", action="store_true", help="check everything that can be checked before workers start, and stop"
    )
    command.add_argument(
        "--from", dest="peer", type=_project, metavar="PROJECT", help=f"project whose settings follow: {_PROJECTS}"
    )


def _play(command: argparse.ArgumentParser) -> None:
    _recipe(command)
    by_hand = (
        "type each turn yourself; no model is loaded, while tools and environment answer; a final \\ continues a line"
    )
    command.add_argument("--by-hand", action="store_true", help=by_hand)
    which = "number of the prompt in data.val_files, or in data.train_files if that is empty; default %(default)s"
    command.add_argument("--row", type=int, default=0, metavar="N", help=which)
    command.add_argument("--seed", type=int, metavar="N", help="short for trainer.seed=N")


def _plan(command: argparse.ArgumentParser) -> None:
    what = f"the command that is planned ({', '.join(ON_ROWS)}; default train), a recipe and Hydra overrides"
    command.add_argument("words", nargs="*", metavar="COMMAND | RECIPE.yaml | key=value", help=what)
    command.add_argument("--device", default="", help="plan for H100, H200, A100, L40S or 4090 instead of this machine")
    command.add_argument("--response-tokens", type=float, help="mean response length; default is half of the maximum")


def _config(command: argparse.ArgumentParser) -> None:
    _recipe(command)
    command.add_argument(
        "--docs", action="store_true", help="show each option's description; name a section to show only that"
    )
    command.add_argument("--diff", action="store_true", help="compare two recipes or run folders: config --diff A B")


def _help(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "section", nargs="?", default="", help="a section or an option; by default all sections are listed"
    )


def _export(command: argparse.ArgumentParser) -> None:
    checkpoint = "a checkpoints/step_N folder of a run, or a run folder for its newest checkpoint"
    command.add_argument("checkpoint", type=Path, help=checkpoint)
    command.add_argument("out", type=Path, nargs="?", help="a new folder; default is RUN/export/step_N")
    command.add_argument("--replace", action="store_true", help="replace the model in OUT")
    command.add_argument(
        "--adapter",
        action="store_true",
        help="write only the LoRA adapter, in peft's format (default RUN/export/step_N-adapter), not the merged model",
    )


def _report(command: argparse.ArgumentParser) -> None:
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders; several share the charts")
    which = "file of the page; default is RUN/report.html, and report.html for several runs"
    result = command.add_mutually_exclusive_group()
    result.add_argument("--out", type=Path, help=which)
    result.add_argument("--json", action="store_true", help="print the page's content as JSON, for programs")


def _watch(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN", help="a run folder, or the URL of its copy: trainer.remote_dir/NAME")
    every = "seconds between two readings of the run's files; default %(default)s, and at least 5 for a remote folder"
    command.add_argument("--every", type=_period, default=2.0, metavar="SECONDS", help=every)
    follow = "print a line for each step, warning and stall as it comes, until the run ends, instead of a picture"
    command.add_argument("--follow", action="store_true", help=follow)


def _period(text: str) -> float:
    """Read a number of seconds between two readings."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected 0.1 to 3600 seconds. Give e.g. --every 5.")
    return seconds


def _serve(command: argparse.ArgumentParser) -> None:
    runs = "run folders; only programs of this machine that know the printed address can read their report"
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=runs)
    command.add_argument("--port", type=_port, default=0, help="port on 127.0.0.1; by default a free one")


def _port(text: str) -> int:
    """Read the number of a port."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected 0 to 65535. Give e.g. --port 8000.")
    return int(text)


def _compare(command: argparse.ArgumentParser) -> None:
    runs = "run folders, two or more; runs that differ only in seed and name are a group"
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=runs)
    command.add_argument("--json", action="store_true", help="print the comparison as JSON, for programs")
    command.add_argument("--out", type=Path, help="also write the report of all these runs into this file")


def _replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, help="a run folder")
    command.add_argument("--step", type=int, required=True, help="the step to repeat")


def _scale(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, help="the folder of a run in progress")
    command.add_argument("words", nargs="*", metavar="rollout=N", help="number of workers for the pool rollout")


def _rescore(command: argparse.ArgumentParser) -> None:
    differs = "changes to the run's reward section"
    command.add_argument("run", type=Path, help="a run folder, with responses in samples/")
    command.add_argument("words", nargs="*", metavar="reward.OPTION=VALUE", help=differs)
    command.add_argument("--function", help="short for reward.function=...")
    which = "files of samples/, e.g. 'step_1?.jsonl'; default %(default)s"
    command.add_argument("--files", default="*step_*.jsonl", help=which)
    command.add_argument(
        "--out", type=Path, help="a new file; default is RUN/rescored.jsonl, then rescored_2.jsonl, ..."
    )


def _migrate(command: argparse.ArgumentParser) -> None:
    command.add_argument("--from", dest="peer", required=True, type=_project, metavar="PROJECT", help=_PROJECTS)
    command.add_argument("--out", type=Path, help="file of the recipe; default is the script's name with .yaml")
    command.add_argument("file", type=Path, metavar="SCRIPT.sh | CONFIG.yaml", help="read, never run")
    command.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="argument of the script, its $1 ...; after --"
    )


def _completion(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "shell", choices=[*SHELLS, "words"], help="shell of the script; words is used by the script itself"
    )
    command.add_argument("line", nargs="?", default="", help="for words: the command line up to the cursor")


def _doctor(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quick", action="store_true", help="import neither torch nor an engine, for health checks")


ARGUMENTS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "train": _train,
    "sft": _train,
    "dpo": _train,
    "rm": _train,
    "play": _play,
    "rescore": _rescore,
    "export": _export,
    "report": _report,
    "watch": _watch,
    "serve": _serve,
    "compare": _compare,
    "replay": _replay,
    "scale": _scale,
    "migrate": _migrate,
    "plan": _plan,
    "config": _config,
    "help": _help,
    "completion": _completion,
    "doctor": _doctor,
}
