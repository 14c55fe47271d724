"""Every command that trains, killed by SIGKILL in a step: the same command continues it bit for bit.

The killed run and the continued one are started as a user starts them. The unbroken run shares the workers of the other
tests. ``test_interrupt.py`` does the same to ``verl-like train`` with rewards.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e._started_command import StartedCommand, wait_for
from tests.e2e._uninterrupted import differences
from tests.e2e.conftest import arguments
from verl_like.cli import main
from verl_like.telemetry.trackers import read_metrics

STEPS, KILLED_IN_STEP = 5, 4
ANSWERS = ("data.train_files=[{data}/sft.parquet]", "data.val_files=[{data}/sft.parquet]")
PAIRS = ("data.train_files=[{data}/pairs.parquet]", "data.val_files=[{data}/val_pairs.parquet]")
UNPAIRED = ("data.train_files=[{data}/labelled.parquet]", "data.val_files=[{data}/val_labelled.parquet]")


@dataclass(frozen=True, slots=True)
class Case:
    """A command and its options, and a metric that changes from step to step."""

    command: str
    options: tuple[str, ...]
    metric: str


CASES = {
    "sft": Case("sft", (*ANSWERS, "model.lora.rank=4"), "sft/loss"),
    "rm": Case("rm", PAIRS, "rm/loss"),
    "dpo": Case("dpo", PAIRS, "dpo/loss"),
    "kto": Case("dpo", (*UNPAIRED, "dpo.losses={{kto: 1}}"), "dpo/loss"),
    "rae": Case("train", ("algorithm=rae", "rollout=hf"), "reward/role_baseline/arithmetic"),
    "distill": Case("train", ("algorithm=distill", "rollout=hf", "ref.path={teacher}"), "actor/distill_loss"),
}


def words(case: Case, data: Path, teacher: Path, out: Path) -> list[str]:
    options = (option.format(data=data, teacher=teacher) for option in case.options)
    common = (
        "data.train_max_samples=64",
        "data.val_max_samples=8",
        "trainer.test_freq=2",
        "trainer.save_freq=1",
        "trainer.max_checkpoints=9",
        f"trainer.total_training_steps={STEPS}",
        f"trainer.reference_cache={out}/cache",
    )
    return [case.command, *arguments(data, out, *common, *options)]


def is_learning(run: Path, case: Case) -> bool:
    found = list(read_metrics(run / "metrics.jsonl")[case.metric].values())
    return len(found) == STEPS and len(set(found)) > 1


@pytest.mark.nightly
@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_a_killed_command_continues_to_the_numbers_of_an_unbroken_run(
    case: Case, arithmetic: Path, teacher: Path, tmp_path: Path, ray_cluster: None
) -> None:
    assert main(words(case, arithmetic, teacher, tmp_path / "unbroken")) == 0
    unbroken, run = tmp_path / "unbroken/default", tmp_path / "killed/default"
    assert is_learning(unbroken, case), "equal weights of runs that learn nothing show nothing"

    options = words(case, arithmetic, teacher, tmp_path / "killed")
    killed = StartedCommand(options, tmp_path / "killed.log", f"SIGKILL@update_actor#{KILLED_IN_STEP}")
    try:
        assert killed.killed(timeout_s=150) == -signal.SIGKILL, killed.output
        wait_for("the end of every process", lambda: not killed.survivors(), 20)
    finally:
        killed.end()
    saved = {path.name for path in (run / "checkpoints").glob("step_*")}
    assert "step_1" in saved and f"step_{KILLED_IN_STEP}" not in saved and not (run / "model").exists()

    continued = StartedCommand(options, tmp_path / "continued.log")
    try:
        assert continued.ended(timeout_s=150) == 0, continued.output
    finally:
        continued.end()
    assert f"continuing from {run}/checkpoints/step_" in continued.output
    assert differences(run, unbroken) == []
    weights = [folder / "model/model.safetensors" for folder in (run, unbroken)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
