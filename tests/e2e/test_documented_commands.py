"""Every command of README and documentation, as printed and in order, in a fresh checkout on the real stack.

The checkout's recipes train for two steps instead of 200, with a checkpoint after each. The first ``make train`` is a
process of its own, and nothing else about it is changed. What follows runs in one process through the same entry points
and shares its Ray, with one worker that generates in plain transformers: a start then takes seconds, of which each
command has one. The rows of the table of overrides are composed, checked and given their run folder; those of
``TRAINED_ROWS`` are trained too. What cannot be run here stands in ``NOT_RUN`` with its reason.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests._documented import RECIPE, Command, commands, files
from tests.e2e._command_process import CommandProcess
from tests.e2e.conftest import ROOT, SHARED_DATA
from verl_like.checks.rules import check
from verl_like.cli import main
from verl_like.config.compose import compose
from verl_like.runs.folder import RunFolder

SHELL_TIMEOUT_S = 240.0
COMMAND_TIMEOUT_S = 120.0
COMMANDS = commands(ROOT)
NOT_RUN_PROGRAMS = {
    "pip": "installs packages",
    ".venv/bin/pip": "installs packages",
    "docker": "needs Docker, and builds or runs images",
}
NOT_RUN = {
    "would run the test within itself": (
        "make test",
        "make test ARGS=--record-durations",
        "make e2e",
        "make unit",
        ".venv/bin/python -m pytest tests/unit/test_checks.py -k siblings",
    ),
    "installs or resolves packages": (
        "make setup",
        "make setup TORCH_INDEX=URL",
        "make setup HASHES=no",
        "make lock",
        "make peers",
        "make peers && pytest tests/parity",
        "python requirements/make_lock.py cuda",
        "python3 -m venv .venv",
    ),
    "trains for minutes; tests/e2e/test_adding_a_trainer.py trains with it": ("python my_trainer.py",),
    "needs Docker": ("make docker",),
    "needs root, and builds an image": ("make container-check",),
    "makes the site that tests/unit/test_site.py makes": ("make docs",),
    "needs the Hugging Face hub": (
        "python -m recipes.gsm8k.prepare --out data/gsm8k",
        "verl-like train recipes/gsm8k/grpo.yaml",
        "verl-like plan recipes/gsm8k/grpo.yaml --device H100 cluster.num_nodes=2 cluster.workers_per_node=8",
    ),
    "measures for minutes; tests/unit and tests/ray run their parts": (
        "make bench",
        "make bench-check",
        "make e2e-algorithms",
        "make chaos",
        'make chaos ARGS="--page docs/fault_matrix.md"',
        *(
            f"python -m benchmarks.{name}"
            for name in (
                "data_plane",
                "controller_scaling",
                "scale_sim",
                "partition",
                "reward_pool",
                "reward_overlap",
                "grading",
                "memory",
                "plan_error",
                "log_probs",
                "advantages",
                "weight_sync",
                "update",
                "rollout",
                "skewed_rollout",
                "compat",
                "e2e",
                "start",
                "overhead",
            )
        ),
    ),
    "needs a GPU; tests/e2e/test_gpu_check.py makes the dry run": (
        "make gpu-check",
        'make gpu-check ARGS="--device cpu"',
        "python -m benchmarks.gpu_check --only kernels update",
    ),
    "lies in tests/, which the checkout lacks; tests/e2e/test_families.py compares": (
        "python -m tests.families.page > docs/models.md",
    ),
    "writes a page that tests/unit/test_config_page.py compares": ("python -m verl_like.config.page > docs/config.md",),
    "stands for the reader's own command or script; tests/e2e/test_compat.py runs such": (
        "python -m verl_like.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=train.parquet ...",
        "verl-like train --from verl",
        "verl-like train --from verl algorithm.adv_estimator=grpo ...",
        "verl-like migrate --from verl run.sh",
        "verl-like train run.yaml --dry-run",
        "verl-like train recipe.yaml",
        "verl-like help SECTION",
    ),
    "would remove what the other commands need": ("make clean",),
    "is a form, not a command": (
        "python -m verl_like",
        "verl-like COMMAND RECIPE.yaml key=value ...",
        "python -m benchmarks.NAME",
        "verl-like sft",
        "verl-like plan",
        "verl-like train",
        "verl-like train RECIPE cluster.address=auto cluster.num_nodes=N",
    ),
    "names a file that the reader writes; tests/e2e/test_algorithms.py trains with such a file": (
        "verl-like train RECIPE.yaml algorithm.adv_estimator=mine.py:advantage actor.policy_loss=mine.py:loss "
        "trainer.experiment_name=mine",
        "verl-like train RECIPE.yaml actor.policy_loss=mine.py:loss 'actor.policy_loss_kwargs={tau: 0.7}' "
        "trainer.experiment_name=tau",
    ),
    "names a reward model; tests/e2e/test_rewards.py trains with one": (
        f"verl-like train {RECIPE} reward.model.path=PATH_OR_HUB_NAME trainer.experiment_name=reward-model",
    ),
    "needs a package that no lock holds; tests/unit/test_trainer_remote.py has a store": (
        f"verl-like train {RECIPE} trainer.remote_dir=s3://bucket/runs",
    ),
    "needs a package that no lock holds": (
        f"verl-like train {RECIPE} 'trainer.loggers=[console,jsonl,wandb]' trainer.experiment_name=wandb",
    ),
}
TRAINED_ROWS = ("algorithm=dapo",)
REASONS = {text: reason for reason, texts in NOT_RUN.items() for text in texts} | {
    command.text: NOT_RUN_PROGRAMS[command.text.split()[0]]
    for command in COMMANDS
    if command.text.split()[0] in NOT_RUN_PROGRAMS
}
OWN_RUN = ("trainer.experiment_name=", "trainer.seed=", "algorithm=")  # what gives a run a folder of its own
# What the fewer steps of the checkout's recipes, and words that stand for the reader's own, become.
SHORT = {
    "recipes/arithmetic/grpo.yaml": {
        "total_training_steps: 200": "total_training_steps: 2",
        "test_freq: 40": "test_freq: 1",
        "save_freq: 80": "save_freq: 1",
    },
    "recipes/arithmetic/sft.yaml": {"total_training_steps: 1200": "total_training_steps: 150"},
}
WORDS = {
    "checkpoints/step_160": "checkpoints/step_1",  # of steps 160 and 200, which a whole run keeps
    "'step_1?.jsonl'": "'step_?.jsonl'",
    "--step 160": "--step 2",
    "rescore RUN": "rescore outputs/arithmetic/grpo-seed1",
    "=NAME": "=rloo",
    "path/to/folder": str(SHARED_DATA / "gsm8k"),
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh checkout with fewer steps, in which `make setup` has been run, and the files that pages print."""
    folder = tmp_path_factory.mktemp("checkout") / "verl_like"
    ours = (".git", ".venv", ".peers", "outputs", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "tests")
    shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*ours))
    (folder / ".venv").symlink_to(sys.prefix)
    for name, changes in SHORT.items():
        text = (folder / name).read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, f"{name} holds {text.count(old)} times {old!r}"
            text = text.replace(old, new)
        (folder / name).write_text(text)
    for name, body in files(ROOT).items():
        (folder / name).write_text(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def commands_here(checkout: Path, trained: str) -> Iterator[CommandProcess]:
    process = CommandProcess(checkout)
    yield process
    process.close()


@pytest.fixture(scope="module")
def trained(checkout: Path) -> str:
    """What the first command of the README said; runs after it have one worker."""
    said = shell("make -o setup train", checkout)
    with (checkout / RECIPE).open("a") as recipe:
        recipe.write("\ncluster:\n  workers_per_node: 1\n")
    return said


def shell(command: str, folder: Path) -> str:
    """Run in a process of its own, with the checkout's own packages; returns what was printed."""
    process = subprocess.Popen(
        command,
        shell=True,
        cwd=folder,
        executable="/bin/bash",
        env=newcomers_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=SHELL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # what the shell has started would live on
        raise
    assert process.returncode == 0, f"{command}\n{out[-2000:]}\n{errors[-4000:]}"
    return out


def newcomers_environment(folder: Path) -> dict[str, str]:
    """Ours, with the checkout's packages and without what a `make test` around this test hands down to every make."""
    ours = {name: value for name, value in os.environ.items() if not re.fullmatch(r"ARGS|MFLAGS|MAKE[A-Z_]*", name)}
    return ours | {"PYTHONPATH": str(folder), "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}"}


def run(text: str, checkout: Path, commands_here: CommandProcess) -> None:
    """Run one command line; fails where its exit status is not 0."""
    program, *words = shlex.split(text)
    name = Path(program).name
    if name == "make":
        # Even with -n, make runs the lines of a target that calls make.
        assert words[0] in ("train", "doctor", "help"), f"put {text} into NOT_RUN, with a reason"
        # `-o setup`: what it would install is there. What make would run then is run line by line.
        for line in shell(f"make -n -o setup {shlex.join(words)}", checkout).splitlines():
            run(line, checkout, commands_here)
    elif name == "verl-like" or (name == "python" and words[0] == "-m" and ">" not in words):
        quick = ["rollout=hf"] if generates_elsewhere(words) else []
        commands_here.run([name, *words, *quick], timeout_s=COMMAND_TIMEOUT_S)
    else:
        shell(text, checkout)


def generates_elsewhere(words: list[str]) -> bool:
    """Whether the engine may be another one: not where the run of `make train` is to be continued."""
    is_own_run = any(word.startswith(OWN_RUN) for word in words)
    return bool({"eval", "generate"} & set(words)) or (is_own_run and "config" not in words)


def printed(command: Command) -> str:
    text = command.text
    for old, new in WORDS.items():
        text = text.replace(old, new)
    return text


def identified(chosen: list[Command]) -> list[object]:
    return [pytest.param(command, id=command.text) for command in chosen]


def test_what_is_not_run_is_still_printed() -> None:
    assert set(REASONS) - {command.text for command in COMMANDS} == set()


def test_the_pages_hold_the_commands_that_this_test_is_about() -> None:
    texts = [command.text for command in COMMANDS]
    assert texts[:2] == ["make train", "make test"], "the README begins with its two commands"
    assert sum(command.is_row for command in COMMANDS) > 20
    assert {"brief.py", "my_algorithms.py", "my_reward.py"} <= set(files(ROOT))


def test_the_checkpoint_to_branch_off_is_one_that_a_whole_run_keeps() -> None:
    trainer = compose(str(ROOT / RECIPE), []).config.trainer
    saved = [*range(trainer.save_freq, trainer.total_training_steps, trainer.save_freq), trainer.total_training_steps]
    kept = saved[-trainer.max_checkpoints :]
    named = {int(step) for command in COMMANDS for step in re.findall(r"checkpoints/step_(\d+)", command.text)}
    assert named and named <= set(kept)


@pytest.mark.parametrize("target", [c.text for c in COMMANDS if c.text in REASONS and c.text.startswith("make ")])
def test_a_target_that_is_not_run_exists(target: str) -> None:
    assert re.search(rf"^{target.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_before_make_train_the_recipe_names_the_command_that_makes_what_is_missing(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not (checkout / "outputs").exists(), "this test comes before those that train"
    assert main(["train", RECIPE]) == 2
    assert "`make train`" in capsys.readouterr().err


def test_a_make_around_the_tests_does_not_reach_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = shell("make -n -o setup train", ROOT)
    monkeypatch.setenv("ARGS", "-q")
    monkeypatch.setenv("MAKELEVEL", "1")
    monkeypatch.setenv("MAKEFLAGS", " -- ARGS=-q")
    monkeypatch.setenv("MAKEOVERRIDES", "${-*-command-variables-*-}")
    assert shell("make -n -o setup train", ROOT) == alone


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", identified([c for c in COMMANDS if c.text not in REASONS and not c.is_row]))
def test_a_command_runs_as_printed(
    command: Command, checkout: Path, trained: str, commands_here: CommandProcess
) -> None:
    if command.text == "make train":  # it has been run for all the others
        assert (checkout / "outputs/arithmetic/grpo-seed1/model/model.safetensors").is_file(), trained
        return
    if str(SHARED_DATA) in printed(command) and not SHARED_DATA.is_dir():
        pytest.skip(f"{SHARED_DATA} is not here")
    run(printed(command), checkout, commands_here)


@pytest.mark.slow
def test_the_overrides_compose_pass_the_checks_and_take_folders_of_their_own(checkout: Path, trained: str) -> None:
    rows: list[list[str]] = [[], *(shlex.split(printed(c))[3:] for c in COMMANDS if c.is_row and c.text not in REASONS)]
    for words in rows:
        composed = compose(str(ROOT / RECIPE), [*words, "trainer.output_dir=outputs/claimed"])
        check(composed.config)
        folder = RunFolder(composed.config)
        assert not folder.path.exists(), f"{words} would go on with the run of another row"
        folder.claim(composed.yaml(), job="train")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command", identified([c for c in COMMANDS if c.is_row and any(row in c.text for row in TRAINED_ROWS)])
)
def test_an_override_trains_as_printed(command: Command, checkout: Path, commands_here: CommandProcess) -> None:
    run(printed(command), checkout, commands_here)
