"""Every command of README and documentation, as printed and in sequence, in a fresh checkout on the real stack.

The checkout's recipes train for two steps instead of 200, with a checkpoint after each. All tests read the same list,
``RUN``: every printed command, except those in ``NOT_RUN``, which gives a reason for each.

- ``make test`` trains once, from random weights, and passes each command through everything that happens before workers
  start: the training commands with ``--dry-run``, the others as printed. Rows of the table of overrides are composed,
  checked and given their run folder.
- ``make test-all`` runs each command in full; those of other pages than README are ``nightly``. The first command,
  ``make train``, is a separate process, and nothing else about it is changed. What follows runs in one process through
  the same entry points and shares its Ray, with one worker that generates in plain transformers: a start then takes
  seconds. A row is trained where a page prints it as a command.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipes.arithmetic.model import write_model
from recipes.arithmetic.prepare import write_all
from recipes.arithmetic.train import RECIPE as ARITHMETIC
from recipes.from_scratch import DATA_SEED
from tests._documented import RECIPE, Command, commands, files
from tests._tiers import slow_but
from tests.e2e._command_process import CommandProcess, status_of
from tests.e2e._kept_workers import KeptWorkers
from tests.e2e.conftest import ROOT, SHARED_DATA
from verl_like.arguments import ON_ROWS, parsed
from verl_like.checks.rules import check
from verl_like.cli import main
from verl_like.config.compose import compose
from verl_like.runs.folder import RunFolder
from verl_like.runs.replay_plan import replay_plan

COMMAND_TIMEOUT_S = 240.0
COMMANDS = commands(ROOT)
NOT_RUN_PROGRAMS = {
    "pip": "installs packages",
    ".venv/bin/pip": "installs packages",
    "docker": "needs Docker, and builds or runs images",
}
NOT_RUN = {
    "would run the test within itself": (
        "make test",
        "make test-all",
        "make test-all LONG='(slow and not nightly)'",
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
        "python3 -m venv data/gem/venv",
        "python3 -m venv data/verifiers/venv",
    ),
    "trains for minutes; tests/e2e/test_adding_a_trainer.py trains with it": ("python my_trainer.py",),
    "runs until it is interrupted; tests/e2e/test_watch.py follows a run with it": (
        "verl-like serve outputs/arithmetic/grpo-seed1",
    ),
    "needs Docker": ("make docker",),
    "needs root, and builds an image": ("make container-check",),
    "makes the site that tests/unit/test_site.py makes": ("make docs",),
    "needs the Hugging Face hub": (
        "python -m recipes.gsm8k.prepare --out data/gsm8k",
        "verl-like train recipes/gsm8k/grpo.yaml",
        "python -m recipes.geo3k.prepare --out data/geo3k",
        "verl-like train recipes/geo3k/grpo.yaml",
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
                "data_scale",
                "controller_scaling",
                "scale_sim",
                "partition",
                "reward_pool",
                "reward_overlap",
                "grading",
                "memory",
                "plan_error",
                "plan_fake",
                "gpu_count",
                "log_probs",
                "advantages",
                "weight_sync",
                "agent_overlap",
                "async_speedup",
                "on_sync",
                "experts",
                "router_replay",
                "report",
                "update",
                "rollout",
                "skewed_rollout",
                "compat",
                "e2e",
                "preferences",
                "start",
                "overhead",
                "time_to_score",
            )
        ),
    ),
    "needs a GPU; tests/e2e/test_gpu_check.py makes the dry run": (
        "make gpu-check",
        "python3 -m benchmarks.gpu_check",
        "python3 -m benchmarks.gpu_check --device cpu",
        "python3 -m benchmarks.gpu_check --only kernels update",
    ),
    "is in tests/, which the checkout lacks; tests/e2e/test_families.py compares": (
        "python -m tests.families.page > docs/models.md",
    ),
    "writes a page that tests/unit/test_config_page.py compares": ("python -m verl_like.config.page > docs/config.md",),
    "prints a table that tests/unit/test_plan_table.py compares": ("python -m benchmarks.plan_table",),
    "stands for the reader's own command or script; tests/e2e/test_compat.py runs such": (
        "python -m verl_like.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=train.parquet ...",
        "verl-like train --from verl",
        "verl-like train --from verl algorithm.adv_estimator=grpo ...",
        "verl-like migrate --from verl run.sh",
        "verl-like dpo --from openrlhf --model.model_name_or_path MODEL --data.dataset pairs.jsonl ...",
        "verl-like train run.yaml --dry-run",
        "verl-like train recipe.yaml",
        "verl-like help SECTION",
    ),
    "needs the model that the recipe's run.sh trains; tests/environments/test_play.py plays by hand": (
        *(
            f"verl-like {command} recipes/{name}/{file}.yaml"
            for name in ("guess_number", "calculator")
            for command, file in (("sft", "sft"), ("train", "grpo"), ("play", "grpo"))
        ),
        "verl-like play recipes/guess_number/grpo.yaml --by-hand",
        "verl-like eval recipes/arithmetic/grpo.yaml trainer.resume=never model.path=outputs/preferences/dpo/model",
    ),
    "needs the tokenizer of the Hugging Face hub; tests/environments/test_play.py plays by hand": (
        "verl-like play recipes/search/grpo.yaml --by-hand",
        "verl-like play recipes/code_agent/grpo.yaml --by-hand",
    ),
    "would remove what the other commands need": ("make clean",),
    "is a form, not a command": (
        "python -m verl_like",
        "verl-like COMMAND RECIPE.yaml key=value ...",
        "python -m benchmarks.NAME",
        "verl-like sft",
        "verl-like dpo",
        "verl-like rm",
        "verl-like plan",
        "verl-like play",
        "verl-like play RECIPE",
        "verl-like play RECIPE.yaml --by-hand --row N",
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
REASONS = {text: reason for reason, texts in NOT_RUN.items() for text in texts} | {
    command.text: NOT_RUN_PROGRAMS[command.text.split()[0]]
    for command in COMMANDS
    if command.text.split()[0] in NOT_RUN_PROGRAMS
}
RUN = [command for command in COMMANDS if command.text not in REASONS]
ROWS = [command for command in RUN if command.is_row]
LINES = [command for command in RUN if not command.is_row]
PARSED_ONLY = {  # by `make test`
    "verl-like export outputs/arithmetic/lora --adapter": "no run with adapters is there; test_lora.py exports one"
}
OWN_RUN = ("trainer.experiment_name=", "trainer.seed=", "algorithm=")  # what gives a run its own folder
# What the fewer steps of the checkout's recipes, and words that stand for the reader's own, become.
SHORT = {
    "recipes/arithmetic/grpo.yaml": {
        "total_training_steps: 200": "total_training_steps: 2",
        "test_freq: 40": "test_freq: 1",
        "save_freq: 80": "save_freq: 1",
    },
    "recipes/arithmetic/sft.yaml": {"total_training_steps: 1200": "total_training_steps: 150"},
    "recipes/preferences/dpo.yaml": {"total_training_steps: 140": "total_training_steps: 35"},
    "recipes/preferences/rm.yaml": {"total_training_steps: 1200": "total_training_steps: 20"},
}
WORDS = {
    "checkpoints/step_160": "checkpoints/step_1",  # of steps 160 and 200, which a whole run keeps
    "'step_1?.jsonl'": "'step_?.jsonl'",
    "--step 160": "--step 2",
    "rescore RUN": "rescore outputs/arithmetic/grpo-seed1",
    "=NAME": "=rloo",
    "path/to/folder": str(SHARED_DATA / "gsm8k"),
}


def fresh_checkout(folder: Path) -> Path:
    """Make a checkout with fewer steps, in which `make setup` has been run, and the files that pages print."""
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
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkout whose commands are run in full."""
    return fresh_checkout(tmp_path_factory.mktemp("checkout") / "verl_like")


@pytest.fixture(scope="module")
def commands_here(checkout: Path, trained: str) -> Iterator[CommandProcess]:
    process = CommandProcess(checkout)
    yield process
    process.close()


@pytest.fixture(scope="module")
def trained(checkout: Path) -> str:
    """Run the README's first command and return its output; later runs have one worker."""
    message = shell("make -o setup train", checkout)
    with (checkout / RECIPE).open("a") as recipe:
        recipe.write("\ncluster:\n  workers_per_node: 1\n")
    return message


@pytest.fixture(scope="module")
def trained_quickly(tmp_path_factory: pytest.TempPathFactory, ray_cluster: KeptWorkers) -> Path:
    """A checkout with what `make train` leaves, of a policy without the warm start."""
    folder = fresh_checkout(tmp_path_factory.mktemp("quick") / "verl_like")
    recipe = folder / RECIPE
    # Processes of the Ray that all tests share were started in another folder.
    recipe.write_text(recipe.read_text().replace(str(ARITHMETIC.out), str(folder / ARITHMETIC.out)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_all(ARITHMETIC.out / "data", DATA_SEED)
        write_model(ARITHMETIC.out / "init", DATA_SEED)
        warm_start = compose("recipes/arithmetic/sft.yaml", [])
        RunFolder(warm_start.config).claim(warm_start.yaml(), job="sft")
        shutil.copytree(ARITHMETIC.out / "init", ARITHMETIC.out / "warmstart/model")
        assert main(["train", RECIPE]) == 0
    return folder


@pytest.fixture
def trained_here(trained_quickly: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained_quickly)
    return trained_quickly


def shell(command: str, folder: Path) -> str:
    """Run in a separate process, with the checkout's packages; return the output."""
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
        out, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
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
        for line in lines_of_target(words, checkout):
            run(line, checkout, commands_here)
    elif name == "verl-like" or (name == "python" and words[0] == "-m" and ">" not in words):
        quick = ["rollout=hf"] if generates_elsewhere(words) else []
        if any(word.startswith("cluster.placement=") for word in words):  # more than the one worker of `trained`
            quick.append("cluster.workers_per_node=0")
        commands_here.run([name, *words, *quick], timeout_s=COMMAND_TIMEOUT_S)
    else:
        shell(text, checkout)


def lines_of_target(words: list[str], checkout: Path) -> list[str]:
    """Return what make would run."""
    # Even with -n, make runs the lines of a target that calls make.
    assert words[0] in ("train", "doctor", "help"), f"put make {words[0]} into NOT_RUN, with a reason"
    # `-o setup`: what it would install is there.
    return shell(f"make -n -o setup {shlex.join(words)}", checkout).splitlines()


def run_without_workers(text: str, checkout: Path) -> None:
    """Run one command line from the checkout, up to where it would start workers; fails where it is refused."""
    program, *words = shlex.split(text)
    name = Path(program).name
    if name == "make":
        for line in lines_of_target(words, checkout):
            run_without_workers(line, checkout)
    elif name == "verl-like" and words[0] == "replay":
        asked = parsed(words)
        assert replay_plan(asked.run, asked.step).step == asked.step
    elif name == "verl-like":
        assert status_of([name, *before_workers(words)]) == 0
    elif words[:2] == ["-m", "recipes.arithmetic.train"]:  # what it makes first is there
        assert status_of(["verl-like", "train", "--dry-run", RECIPE, *words[2:]]) == 0
    elif name == "python" and words[0] in files(ROOT):
        check(runpy.run_path(words[0])["config"])  # not as the main program, which would train
    elif name == "python" and words[0] == "-m" and ">" not in words:
        assert not status_of([name, *words])
    else:
        shell(text, checkout)


def before_workers(words: list[str]) -> list[str]:
    """Return the words of a command of ours which does as much of it as needs no workers."""
    command, *rest = words
    if command in ("train", *ON_ROWS):
        return words if {"--help", "--dry-run"} & set(rest) else [*words, "--dry-run"]
    if command in ("eval", "generate"):  # the checks of both are those of a run that only validates
        return ["train", "--dry-run", *rest, "trainer.val_only=true"]
    if command == "doctor":
        return ["doctor", "--quick"]
    return words


def generates_elsewhere(words: list[str]) -> bool:
    """Return whether the engine may be replaced: not if the command continues the run of `make train`."""
    is_own_run = any(word.startswith(OWN_RUN) for word in words)
    return bool({"eval", "generate"} & set(words)) or (is_own_run and "config" not in words)


def printed(command: Command) -> str:
    text = command.text
    for old, new in WORDS.items():
        text = text.replace(old, new)
    return text


def skip_without_its_data(command: Command) -> None:
    if str(SHARED_DATA) in printed(command) and not SHARED_DATA.is_dir():
        pytest.skip(f"{SHARED_DATA} is not here")


def test_what_is_not_run_is_still_printed() -> None:
    assert set(REASONS) - {command.text for command in COMMANDS} == set()
    assert set(PARSED_ONLY) <= {command.text for command in LINES}


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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fresh_checkout(tmp_path / "verl_like"))
    assert main(["train", RECIPE]) == 2
    assert "`make train`" in capsys.readouterr().err


def test_a_make_around_the_tests_does_not_reach_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = shell("make -n -o setup train", ROOT)
    monkeypatch.setenv("ARGS", "-q")
    monkeypatch.setenv("MAKELEVEL", "1")
    monkeypatch.setenv("MAKEFLAGS", " -- ARGS=-q")
    monkeypatch.setenv("MAKEOVERRIDES", "${-*-command-variables-*-}")
    assert shell("make -n -o setup train", ROOT) == alone


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # modules that tests have imported
@pytest.mark.parametrize("command", LINES, ids=[command.text for command in LINES])
def test_a_command_is_accepted_as_printed(command: Command, trained_here: Path) -> None:
    skip_without_its_data(command)
    if command.text in PARSED_ONLY:
        parsed(shlex.split(command.text)[1:])
    else:
        run_without_workers(printed(command), trained_here)


def test_the_overrides_compose_pass_the_checks_and_use_separate_folders(trained_here: Path) -> None:
    rows: list[list[str]] = [[], *(shlex.split(printed(row))[3:] for row in ROWS)]
    for words in rows:
        composed = compose(str(ROOT / RECIPE), [*words, "trainer.output_dir=outputs/claimed"])
        check(composed.config)
        folder = RunFolder(composed.config)
        assert not folder.path.exists(), f"{words} would continue the run of another row"
        folder.claim(composed.yaml(), job="train")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command",
    slow_but(
        (),
        ((command.text, (command,)) for command in LINES),
        nightly=[command.text for command in LINES if command.page != "README.md"],
    ),
)
def test_a_command_runs_as_printed(
    command: Command, checkout: Path, trained: str, commands_here: CommandProcess
) -> None:
    if command.text == "make train":  # it has been run for all the others
        assert (checkout / "outputs/arithmetic/grpo-seed1/model/model.safetensors").is_file(), trained
        return
    skip_without_its_data(command)
    run(printed(command), checkout, commands_here)
