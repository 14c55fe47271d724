"""The command line: ``verl-like COMMAND [RECIPE.yaml] [key=value ...]``."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from verl_like.arguments import ON_ROWS, parsed
from verl_like.call_threads import CallThreads, RayThreads
from verl_like.commands import COMMANDS
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.errors import Announcer, Interrupt, Interrupted, OutOfGrace, RayLost, RunError, StageTimeout
from verl_like.disk import DiskRefused
from verl_like.imports import importing
from verl_like.masking import MaskingFormatter, masked_text
from verl_like.telemetry.startup import Startup

if TYPE_CHECKING:
    from verl_like.config.compose import Composed


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status.

    0 done, or stopped cleanly and able to continue; 1 failed; 2 wrong input; 130 interrupted.
    """
    words = sys.argv[1:] if argv is None else argv
    arguments = parsed(words)
    arguments.typed = words
    if isinstance(sys.stdout, io.TextIOWrapper):  # in a pipe too, its lines and the log's keep their order
        sys.stdout.reconfigure(line_buffering=True)
    terminal = logging.StreamHandler()
    terminal.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[terminal])
    for noisy in ("httpx", "matplotlib", "ray", "vllm", "transformers"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    is_program = argv is None  # not a test or script, which another program must not replace
    return _ended(_run(lambda: _command(arguments, is_program=is_program)))


def _ended(status: int) -> int:
    """Return the exit status, or end the process here if Ray or a service cannot be ended."""
    # The exit handlers of a library in which a call hangs would wait forever.
    if current(RayThreads).is_busy or current(RayThreads).is_library_lost or current(CallThreads).abandoned():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


FOLDER_OPTIONS = ("trainer.output_dir", "trainer.experiment_name", "trainer.resume")
FORESEEN = (ValueError, RunError, StageTimeout, DiskRefused)  # their messages need no traceback


def _run(job: Callable[[], int]) -> int:
    """Print errors that a user can correct on one line, and end cleanly on Ctrl-C."""
    try:
        with current(Announcer).to(_print_error):
            status = job()
            sys.stdout.flush()  # here, where a closed pipe is handled
            return status
    except ValueError:
        return 2
    except FORESEEN:
        return 1
    except BrokenPipeError:  # the program that read the output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:  # not an error of a file
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        print(f"interrupted{f' in {interrupt}' if str(interrupt) else ''}; everything was shut down.", file=sys.stderr)
        return 130


def _print_error(error: BaseException) -> bool:
    """Print an error that a user can correct on one line; other errors keep their traceback."""
    if isinstance(error, FORESEEN):
        logging.getLogger(__name__).debug("details", exc_info=error)
        print(f"error: {masked_text(str(error))}", file=sys.stderr, flush=True)
    return True


def _command(arguments: argparse.Namespace, *, is_program: bool) -> int:
    if arguments.command in COMMANDS:
        return COMMANDS[arguments.command](arguments)
    if arguments.command == "config":
        return _config(arguments)
    if arguments.command == "plan":
        return _plan(arguments)
    if arguments.command == "play" and arguments.by_hand:
        from verl_like.play_command import play_by_hand

        return play_by_hand(*_recipe_and_overrides(arguments), row=arguments.row)
    if _is_dry(arguments):
        composed, unread = _read(arguments)
        return _dry_run(arguments.command, composed, _checked(arguments, composed, unread))
    # In a test or a script, the fork server starts after the checks.
    with _forks(arguments.command, Config()) if is_program else nullcontext():  # many recipes need that of the defaults
        composed, unread = _read(arguments)
        with _forks(arguments.command, composed.config) if is_program and not unread else nullcontext():
            _checked(arguments, composed, unread)
            row = arguments.row if arguments.command == "play" else 0
            return _started(arguments.command, composed, is_program=is_program, row=row)


def _is_dry(arguments: argparse.Namespace) -> bool:
    return arguments.command in ("train", *ON_ROWS) and bool(arguments.dry_run)


def _dry_run(command: str, composed: Composed, held: list[str]) -> int:
    """Print what a start would find, and raise the errors that it would raise.

    Args:
        held: reasons why the run cannot start in its folder.
    """
    from verl_like.config.problems import Refused, refuse
    from verl_like.config.render import render_changed

    print(render_changed(composed), flush=True)
    with current(Startup).shown():
        current(Startup).now("loading transformers")
        with importing():
            from verl_like.training import dry_run

        try:
            found = dry_run.dry_run(composed.config, command=command)
        except ValueError as error:
            refuse([*(error.problems if isinstance(error, Refused) else [str(error)]), *held])
    print(found, flush=True)
    refuse(held)
    print("No problem was found that shows before workers start; the same command without --dry-run starts them.")
    return 0


def _started(command: str, composed: Composed, *, is_program: bool, row: int = 0) -> int:
    """Run the job of a command; return the exit status.

    Args:
        row: number of the prompt that ``play`` takes.
    """
    from verl_like.runs.folder import RunFolder
    from verl_like.runs.restarts import restart_program
    from verl_like.runs.signals import ends_cleanly
    from verl_like.runs.status import last_checkpoint

    config, folder = composed.config, RunFolder(composed.config)
    is_training = _is_training(command, config)

    def left() -> str:
        return last_checkpoint(folder) if is_training else "The same command starts from the beginning."

    def report(error: BaseException) -> bool:
        current(Startup).done()  # its progress line would overwrite this one
        if isinstance(error, FORESEEN):
            return _print_error(RunError(f"{error} {left()}") if isinstance(error, OutOfGrace) else error)
        from verl_like.runs.crash import crash_report

        print(f"error: {crash_report(error, folder.path)}", file=sys.stderr, flush=True)
        return True

    try:
        with ends_cleanly(config.trainer.grace_s, left), current(Startup).shown(), current(Announcer).to(report):
            try:
                answer = _job(command, composed, row)
            finally:
                is_interrupted = is_training and current(Interrupt).is_set()
    except Interrupted as where:
        if not is_training:
            raise
        print(f"interrupted in {where}, before the first step. {left()}", file=sys.stderr)
        return 0
    except (KeyboardInterrupt, SystemExit):
        raise
    except RayLost as lost:  # this process holds the rest of a lost Ray; a program that replaces it does not
        if is_training and is_program and not is_interrupted:
            restart_program(config, lost)
        return 1
    except BaseException as error:  # noqa: BLE001 (reported; torch's CheckpointException is no Exception)
        return 2 if isinstance(error, ValueError) else 1
    print(answer)
    if is_interrupted:
        print("interrupted; the last finished step is saved, and the same command continues from it.", file=sys.stderr)
    return 0


def _job(command: str, composed: Composed, row: int) -> str:
    """Run the job; return the text to print at the end."""
    from verl_like.checks.requirements import check_machine
    from verl_like.config.render import render_changed
    from verl_like.runs.folder import RunFolder
    from verl_like.runs.restarts import COUNT_VARIABLE
    from verl_like.runs.status import finished_at_once, outputs_of
    from verl_like.runs.upload import uploaded

    config, folder = composed.config, RunFolder(composed.config)
    is_training = _is_training(command, config)
    if is_training and (finished := finished_at_once(config, composed.yaml(), job=command)):
        with uploaded(config, folder):  # the previous end may not have copied everything
            return f"{finished}\n{outputs_of(folder)}"
    if is_training and COUNT_VARIABLE not in os.environ:  # a restart has already shown it
        current(Startup).say(render_changed(composed))
    launched, generates = _launched(command, config)
    check_machine(config, generates=generates, warns=False)  # the job warns
    with _forks(command, config):
        from verl_like.launched_job import run_launched

        return run_launched(command, composed, launched, generates=generates, is_training=is_training, row=row)


def _launched(command: str, config: Config) -> tuple[Config, bool]:
    """Return the configuration with which a command launches workers, and whether these have rollout engines."""
    from verl_like.config.reads import as_read

    generates = command not in ON_ROWS or config.val_generates(command)
    return as_read(command, config) if command in ON_ROWS else config, generates


def _is_training(command: str, config: Config) -> bool:
    return command in ON_ROWS or (command == "train" and not config.trainer.val_only)


def _config(arguments: argparse.Namespace) -> int:
    """Print the configuration and raise its problems; missing files are only printed as notes.

    Without a recipe or an override, nothing is checked.
    """
    from verl_like.checks.rules import contradictions, missing
    from verl_like.config.compose import read
    from verl_like.config.options import sections
    from verl_like.config.problems import refuse, without_echoes
    from verl_like.config.render import differences, render

    if arguments.diff:
        print(differences(*arguments.words), end="")
        return 0
    named = [word for word in arguments.words if arguments.docs and word in sections()]
    arguments.words = [word for word in arguments.words if word not in named]
    composed, found = read(*_recipe_and_overrides(arguments))
    if not found:
        print(render(composed, docs=arguments.docs, section=named[0] if named else ""), end="", flush=True)
    if arguments.words and not arguments.docs:
        for problem in without_echoes(found, missing(composed.config)):
            print(f"note: {masked_text(problem)}", file=sys.stderr)
        found += without_echoes(found, contradictions(composed.config))
    refuse(found)
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    """Print the plan; return 1 if it does not fit."""
    from verl_like.config.compose import read
    from verl_like.config.problems import refuse

    with importing():
        from verl_like.plan.command import plan_text

    job = arguments.words.pop(0) if arguments.words[:1] and arguments.words[0] in ("train", *ON_ROWS) else "train"
    composed, found = read(*_recipe_and_overrides(arguments))
    refuse(found)
    text, fits = plan_text(composed.config, job=job, device=arguments.device, response_tokens=arguments.response_tokens)
    print(text)
    return int(not fits)


def _read(arguments: argparse.Namespace) -> tuple[Composed, list[str]]:
    """Return the configuration of a command, and the problems of reading it."""
    from verl_like.config.compose import read
    from verl_like.config.run_file import shown_command

    if _is_foreign(arguments):
        from verl_like.checks.cluster import only_on_gpus
        from verl_like.config.foreign_command import read_command

        composed, found = read_command(
            arguments.peer, arguments.words, job=arguments.command, only_on_gpus=only_on_gpus
        )
    else:
        composed, found = read(*_recipe_and_overrides(arguments))
    if arguments.command == "play":
        from verl_like.play_command import prepare

        prepare(composed.config)
    return replace(composed, command=shown_command(arguments.typed)), found


def _is_foreign(arguments: argparse.Namespace) -> bool:
    """Return whether the words are those of another project's command."""
    return arguments.command in ("train", *ON_ROWS) and bool(arguments.peer)


def _forks(command: str, config: Config) -> AbstractContextManager[None]:
    """Start the fork server of a command's workers early, because its imports are the longest part of a start."""
    from verl_like.runs.forks import Forks

    launched, generates = _launched(command, config)
    return current(Forks).starting(launched, generates=generates)


def _checked(arguments: argparse.Namespace, composed: Composed, unread: list[str]) -> list[str]:
    """Check the configuration of a command, without heavy imports.

    Returns:
        For a dry run the reasons why it cannot start in its folder. These do not hide other problems of a dry run.
    """
    from verl_like.checks.hub_models import hub_problems
    from verl_like.checks.rules import problems
    from verl_like.config.options import option_at
    from verl_like.config.problems import refuse, without_echoes
    from verl_like.config.reads import as_read, in_vain, misplaced, without_effect
    from verl_like.runs.start import start_problems

    config, is_dry = composed.config, _is_dry(arguments)
    is_on_rows = arguments.command in ON_ROWS
    checked = as_read(arguments.command, config) if is_on_rows else config
    later = [*problems(checked, reads_prompts=not is_on_rows), *hub_problems(checked)]
    found = [*unread, *without_echoes(unread, [*misplaced(arguments.command, config), *later])]
    if config.trainer.remote_dir and not is_dry:  # restores files that a start depends on
        refuse(found)
        _restore(composed, command=arguments.command)
    names_folder = any(option in problem for problem in found for option in FOLDER_OPTIONS)
    held = [] if names_folder else start_problems(config, composed.yaml(), command=arguments.command)
    held = without_echoes(unread, held)
    refuse(found if is_dry else [*found, *held])
    own = [
        word for word in arguments.words if not _is_foreign(arguments) or option_at(word.partition("=")[0]) is not None
    ]
    log, generates = logging.getLogger(__name__), config.val_generates(arguments.command)
    if ignored := list(without_effect(arguments.command, own, generates=generates)):
        sentence = "%s does not read %s, so these words of the command line have no effect"
        log.warning(sentence, arguments.command, ", ".join(ignored))
    if is_on_rows and (ignored := list(in_vain(arguments.command, config, composed.origins))):
        log.warning("%s ignores %s: leave out these options", arguments.command, ", ".join(ignored))
    return held


def _restore(composed: Composed, *, command: str) -> None:
    """Copy the files of the run that the remote folder has and this machine lacks."""
    from verl_like.runs.restore import restore

    with current(Startup).shown():
        restore(composed.config, composed.yaml(), job=command if _is_training(command, composed.config) else "")


def _recipe_and_overrides(arguments: argparse.Namespace) -> tuple[str | None, list[str]]:
    """Separate the recipe, which may be anywhere among the overrides."""
    recipes = [word for word in arguments.words if "=" not in word and not word.startswith("~")]
    if len(recipes) > 1:
        raise ValueError(
            f"{' and '.join(recipes)} have no =, but a command takes one recipe and overrides like rollout.n=4. "
            "Name one recipe, or write key=value."
        )
    overrides = [word for word in arguments.words if word not in recipes]
    forced = (
        ["trainer.val_only=true", "rollout.keep_sampling_mask=false", "rollout.router_replay=false"]
        if arguments.command in ("eval", "generate", "play")
        else []
    )
    if arguments.command == "play" and arguments.seed is not None:
        forced.append(f"trainer.seed={arguments.seed}")
    return (recipes[0] if recipes else None), [*overrides, *forced]
