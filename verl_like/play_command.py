"""``verl-like play``: what it checks, and the terminal of an episode that a person plays."""

from __future__ import annotations

from collections.abc import Iterator

from verl_like.checks.paths import missing_folder
from verl_like.config.problems import refuse
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.imports import importing
from verl_like.masking import masked_text
from verl_like.remote import is_remote
from verl_like.telemetry.startup import Startup


def play_problems(config: Config) -> Iterator[str]:
    """Yield why there is nothing to play: found, expected, remedy."""
    if not config.environment.is_used:
        yield (
            "environment.path and environment.tools are empty, but play runs an episode with an environment or tools. "
            "Set environment.path=path/to/file.py:name or environment.tools=path/to/file.py, or write plain responses "
            "with verl-like generate."
        )
    if not config.data.val_files and not config.data.train_files:
        yield (
            "data.val_files and data.train_files are empty, but an episode begins with a prompt. Set "
            "data.val_files=[path/to/val.parquet]."
        )


def prepare(config: Config) -> None:
    """Let the training prompts serve if there are no held-out ones.

    Raises:
        ValueError: there is nothing to play.
    """
    refuse(play_problems(config))
    config.data.val_files = config.data.val_files or config.data.train_files


def _tokenizer_exists(config: Config) -> Iterator[str]:
    """Yield a problem if the folder of the tokenizer is missing; weights are not needed."""
    model, file = config.model, "tokenizer_config.json"
    name = "model.tokenizer_path" if model.tokenizer_path else "model.path"
    if not is_remote(model.tokenizer) and (
        problem := missing_folder(
            name, model.tokenizer, needs_file=file, prepare_command=config.trainer.prepare_command
        )
    ):
        yield problem


def play_by_hand(recipe: str | None, overrides: list[str], *, row: int) -> int:
    """Play an episode whose turns the user types, and return the exit status.

    Only what an episode needs is checked: there may be no GPU, no checkpoint and no weights of the model.
    """
    from verl_like.checks.data import data_files_exist
    from verl_like.checks.environment import ENVIRONMENT_RULES, environment_files_exist
    from verl_like.config.compose import read
    from verl_like.config.problems import without_echoes

    composed, found = read(recipe, overrides)
    config = composed.config
    prepare(config)
    config.data.train_files = []  # not read, so they need not exist
    rules = (*ENVIRONMENT_RULES, environment_files_exist, data_files_exist, _tokenizer_exists)
    refuse([*found, *without_echoes(found, [problem for rule in rules for problem in rule(config)])])
    with current(Startup).shown():
        current(Startup).now("loading the tokenizer")
        with importing():
            from verl_like.training.play_by_hand import play_by_hand as play
        keyboard = Keyboard()
        print(play(config, row, keyboard))
    return 0


class Keyboard:
    """Prints to standard output and reads lines from standard input."""

    def show(self, text: str) -> None:
        """Print lines."""
        current(Startup).done()  # its progress line would overwrite this one
        print(masked_text(text), flush=True)

    def typed(self, prompt: str) -> str:
        """Return the typed line; a backslash at its end continues with the next one.

        Raises:
            EOFError: Ctrl-D, or the end of a pipe.
        """
        import readline  # noqa: F401 (input() then has history and editing)

        lines = [input(prompt)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(input("... "))
        return "\n".join(lines)
