"""Measure how much reward time overlaps with other stages: ``python -m benchmarks.reward_overlap [--rounds N]``.

Runs PPO on the real stack (Ray, FSDP2, vLLM; the arithmetic recipe's model with random weights). The scorer sleeps, so
that it does not compete for the cores. The benchmark sets the time that it sleeps before each step. The four kinds of
steps alternate, so that a drift of the machine affects all of them:

- no reward: the scorer returns at once;
- hidden: the scorers are busy for as long, in total, as the stages between rollout and advantages take;
- quick: a twentieth of that;
- slow: a hundred times quick.

Figures are medians over the rounds; ratios are computed within each round. Needs otherwise idle cores. Prints one JSON
object as its last line.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from benchmarks._machine import print_result
from recipes.arithmetic.model import write_model
from recipes.arithmetic.prepare import write_all
from verl_like.algorithms.roles import needs
from verl_like.checks.rules import check
from verl_like.config.compose import compose
from verl_like.config.schema import Config
from verl_like.data.files import read_rows
from verl_like.data.loader import PromptLoader
from verl_like.data.prompts import PromptDataset
from verl_like.data.templates import load_tokenizer
from verl_like.runs.folder import RunFolder
from verl_like.telemetry.loggers import trackers
from verl_like.training.build import stack
from verl_like.training.parts import parts_of
from verl_like.training.ppo import PPOTrainer

SCORER = """
import time
from pathlib import Path

SECONDS = Path(__file__).with_name("seconds")

def sleeps(solution_str, ground_truth):
    time.sleep(float(SECONDS.read_text()))
    return float(solution_str.startswith(ground_truth))
"""
NUM_WORKERS = 8
WARM_UP_STEPS = 5
BEHIND = ("old_log_probs", "ref_log_probs", "values")  # the stages between the rollout and the wait for the scores
MIN_SHARE = 0.05  # of a step; shorter stages are noise


class Steps:
    """Steps of the real trainer with a scorer whose time is set from outside."""

    def __init__(self, trainer: PPOTrainer, seconds_file: Path, config: Config) -> None:
        self._trainer, self._seconds_file = trainer, seconds_file
        self.rows = config.data.train_batch_size * config.rollout.n
        self._step = 0

    def run(self, busy_s: float) -> dict[str, float]:
        """Return the seconds of each stage, and of the ``step``, with scorers that are busy for ``busy_s`` in total."""
        self._seconds_file.write_text(repr(busy_s * NUM_WORKERS / self.rows))
        self._step += 1
        metrics = self._trainer.step(self._step)
        return {name[5:-2]: value for name, value in metrics.items() if name.startswith("time/")}


def overrides(folder: Path) -> list[str]:
    return [
        "algorithm=ppo",
        f"data.train_files=[{folder}/data/train.parquet]",
        "data.val_files=[]",
        f"model.path={folder}/init",
        f"trainer.output_dir={folder}",
        "trainer.loggers=[jsonl]",
        "trainer.test_freq=0",
        "trainer.save_freq=0",
        "data.train_batch_size=32",
        "actor.mini_batch_size=16",
        "critic.mini_batch_size=16",
        "actor.kl_loss_coef=0.001",
        "data.max_response_length=64",
        "rollout.ignore_eos=true",
        f"reward.function={folder}/scorer.py:sleeps",
        f"reward.num_workers={NUM_WORKERS}",
        "trainer.experiment_name=overlap",
    ]


def measure(folder: Path, rounds: int) -> dict[str, object]:
    write_all(folder / "data", seed=0)
    write_model(folder / "init", seed=0)
    (folder / "scorer.py").write_text(SCORER)
    (folder / "seconds").write_text("0.0")
    config = compose("recipes/arithmetic/grpo.yaml", overrides(folder)).config
    check(config)
    tokenizer = load_tokenizer(config.model.tokenizer)
    prompts = PromptDataset(read_rows(config.data.train_files), config.data, tokenizer)
    loader = PromptLoader(prompts, config.data, seed=0)
    run_folder = RunFolder(config)
    total = WARM_UP_STEPS + 4 * rounds
    with (
        trackers(config, run_folder.path, total_steps=total) as tracker,
        stack(
            config, tokenizer, run_folder, roles=needs(config).roles, actor_updates=2 * total, critic_updates=2 * total
        ) as workers,
    ):
        trainer = PPOTrainer(parts_of(config, workers, run_folder, loader=loader, trackers=tracker))
        trainer.start()
        return _figures(Steps(trainer, folder / "seconds", config), rounds)


def _figures(steps: Steps, rounds: int) -> dict[str, object]:
    warm = [steps.run(0.0) for _ in range(WARM_UP_STEPS)][2:]
    busy_s = median(sum(step[name] for name in BEHIND) for step in warm)
    times = {"none": 0.0, "hidden": busy_s, "quick": busy_s / 20, "slow": busy_s / 20 * 100}
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in times}
    for _ in range(rounds):
        for kind, seconds in times.items():
            found[kind].append(steps.run(seconds))

    def of(kind: str, stage: str) -> float:
        return median(step.get(stage, 0.0) for step in found[kind])

    def ratio(kind: str, other: str, stage: str) -> float:
        return median(a[stage] / b[stage] for a, b in zip(found[kind], found[other], strict=True))

    names = set(found["quick"][0]) - {"step", "reward_wait"}
    stages = sorted(name for name in names if of("quick", name) > MIN_SHARE * of("none", "step"))
    slowdowns = {name: round(ratio("slow", "quick", name), 3) for name in stages}
    wait_s = of("hidden", "reward_wait")
    return {
        "hidden_frac": round(1 - wait_s / busy_s, 4),
        "reward_wait_s": round(wait_s, 4),
        "reward_busy_s": round(busy_s, 4),
        "step_s": round(of("hidden", "step"), 4),
        "step_s_without_reward": round(of("none", "step"), 4),
        "step_ratio": round(ratio("hidden", "none", "step"), 4),
        "slowdown_100x_other_stages": max(slowdowns.values()),
        "slowdown_100x_by_stage": slowdowns,
        "reward_wait_s_quick": round(of("quick", "reward_wait"), 4),
        "reward_wait_s_slow": round(of("slow", "reward_wait"), 4),
        "rows": steps.rows,
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        print_result(measure(Path(folder), rounds))


if __name__ == "__main__":
    main()
