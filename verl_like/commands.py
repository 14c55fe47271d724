"""Commands of the command line that take no recipe: each prints its result and returns the exit status.

Their modules are imported when they run, so that a short answer needs no large library.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from verl_like.context import current
from verl_like.disk import refuse_unwritable, unused, writing
from verl_like.imports import importing
from verl_like.telemetry.startup import Startup


def _doctor(arguments: argparse.Namespace) -> int:
    from verl_like.doctor import main

    return main(is_quick=arguments.quick)


def _help(arguments: argparse.Namespace) -> int:
    from verl_like.config.page import help_text

    print(help_text(arguments.section))
    return 0


def _completion(arguments: argparse.Namespace) -> int:
    from verl_like.completion import SCRIPTS, words_at

    asks = arguments.shell == "words"
    print("".join(f"{word}\n" for word in words_at(arguments.line)) if asks else SCRIPTS[arguments.shell], end="")
    return 0


def _scale(arguments: argparse.Namespace) -> int:
    from verl_like.runs.scaling import request

    print(request(arguments.run, arguments.words))
    return 0


def _migrate(arguments: argparse.Namespace) -> int:
    from verl_like.checks.cluster import only_on_gpus
    from verl_like.config.foreign_command import write_recipe

    text, status = write_recipe(
        arguments.peer, arguments.file, arguments.words, out=arguments.out, only_on_gpus=only_on_gpus
    )
    print(text)
    return status


def _report(arguments: argparse.Namespace) -> int:
    from verl_like.report.command import as_json, write_report

    if arguments.json:
        print(as_json(arguments.runs))
    else:
        print(write_report(arguments.runs, arguments.out))
    return 0


def _watch(arguments: argparse.Namespace) -> int:
    from verl_like.dashboard.command import watch

    return watch(arguments.run, every_s=arguments.every, follows=arguments.follow)


def _compare(arguments: argparse.Namespace) -> int:
    from verl_like.compare.command import as_json, as_text, comparison
    from verl_like.report.command import write_report

    found = comparison(arguments.runs)
    print(as_json(found) if arguments.json else as_text(found))
    if arguments.out:
        page = write_report(arguments.runs, arguments.out)
        if not arguments.json:
            print(f"\n{page}")
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    from verl_like.report.serve_command import serve

    return serve(arguments.runs, port=arguments.port, show=print)


def _rescore(arguments: argparse.Namespace) -> int:
    from verl_like.checks.reward import reward_files_exist, reward_functions_are_known
    from verl_like.config.compose import compose_run
    from verl_like.config.problems import refuse

    function = (
        [f"reward.function={arguments.function}", "reward.functions={}", "reward.function_kwargs={}"]
        if arguments.function
        else []
    )
    composed = compose_run(arguments.run, [*function, *arguments.words])
    refuse([*reward_functions_are_known(composed.config), *reward_files_exist(composed.config)])
    config = composed.config.reward
    out = arguments.out or unused(arguments.run / "rescored.jsonl")
    if out.exists():
        raise ValueError(f"{out} exists and would be replaced. Name another file: --out.")
    refuse_unwritable(out.parent, option="--out")
    from verl_like.reward import rescore

    rows = rescore.rescore(arguments.run, config, pattern=arguments.files)
    with writing(out, option="--out"):
        rescore.write(rows, out)
    print(f"{rescore.report(rows)}\n\n{out}")
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    """Repeat a step; return 1 if its result differs."""
    from verl_like.checks.requirements import check_machine
    from verl_like.runs.launch import Launcher
    from verl_like.runs.replay_plan import replay_plan
    from verl_like.runs.signals import ends_cleanly

    planned = replay_plan(arguments.run, arguments.step)
    check_machine(planned.config, generates=True, warns=False)  # the job warns
    with (
        ends_cleanly(planned.config.trainer.grace_s, lambda: "The same command starts from the beginning."),
        current(Startup).shown(),
        current(Launcher).launching(planned.config, generates=True),
    ):
        current(Startup).now("loading transformers")
        with importing():
            from verl_like.training.replay import replay, result_of

        at, found = replay(planned)
    print(result_of(planned, at, found))
    return int(found.difference is not None)


def _export(arguments: argparse.Namespace) -> int:
    from verl_like.checks.checkpoints import checkpoint_of
    from verl_like.config.compose import compose_run
    from verl_like.runs.start import export_folder

    checkpoint, adapter = checkpoint_of(arguments.checkpoint), arguments.adapter
    folder = checkpoint.resolve().parents[1]
    recorded = folder / "config.yaml"
    if not recorded.exists():
        raise ValueError(f"{checkpoint} is not in a run folder: {recorded} is missing. Give RUN/checkpoints/step_N.")
    out = export_folder(checkpoint, arguments.out, adapter=adapter, replaces=arguments.replace)
    config = compose_run(folder, []).config
    if adapter and not config.model.lora.rank:
        raise ValueError(
            f"{folder} was trained without LoRA (model.lora.rank=0), so it has no adapter. Drop --adapter."
        )
    from verl_like.runs.launch import Launcher
    from verl_like.runs.signals import ends_cleanly

    with (
        ends_cleanly(config.trainer.grace_s, lambda: "The same command starts from the beginning."),
        current(Startup).shown(),
        current(Launcher).launching(config, generates=False),
    ):
        current(Startup).now("loading transformers")
        with importing():
            from verl_like.training import policy_jobs

        policy_jobs.export(config, checkpoint, out, adapter=adapter)
    print(out)
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "doctor": _doctor,
    "help": _help,
    "completion": _completion,
    "export": _export,
    "rescore": _rescore,
    "replay": _replay,
    "scale": _scale,
    "migrate": _migrate,
    "report": _report,
    "watch": _watch,
    "serve": _serve,
    "compare": _compare,
}
