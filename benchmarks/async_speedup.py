"""Compare the schedules of a step on one trainer and one engine: ``python -m benchmarks.async_speedup``.

All runs have the same model, prompts and workers (cluster.placement={trainer: 1, rollout: 1}), and alternate. With
environments whose answers take 0.3 s, async is compared with sync; with responses of skewed lengths and nothing that
waits, one_step_off is. The bubble is the share of time in which a pool has nothing to do, of the worse pool of the
asynchronous run. Then one response is a hundred times longer than the others: the pause of an engine for each sync must
not grow with it. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.e2e import WORKLOADS, overrides, write_model, write_prompts
from recipes.guess_number import prepare as guess_number
from verl_like.config.compose import compose
from verl_like.training import jobs

ROUNDS, STEPS, WARM_UP_STEPS = 3, 12, 3
PLACED = (
    "cluster.placement={trainer: 1, rollout: 1}",
    "data.val_files=[]",
    "trainer.val_before_train=false",
    "trainer.loggers=[jsonl]",
    "trainer.num_samples_to_save=0",
    "trainer.num_capsules=0",
    "cluster.device=cpu",
)
SCHEDULES = {
    "sync": (),
    "one_step_off": ("trainer=one_step_off",),
    "async": ("trainer=async", "trainer.max_staleness=2"),
}
ENVIRONMENT = '''
import asyncio


class SlowAnswers:
    """Three turns, each answered after 0.3 s."""

    async def reset(self, secret):
        self.left = 3

    async def step(self, text):
        await asyncio.sleep(0.3)
        self.left -= 1
        return "higher", float("7" in text), self.left == 0
'''
WAITS = ("wait/prompts", "wait/driver")


def slow_environment(folder: Path) -> list[str]:
    """Write an environment, and a model and prompts for it; return the overrides of its runs."""
    (folder / "slow.py").write_text(ENVIRONMENT)
    guess_number.write_data(folder / "games", seed=0)
    guess_number.write_model(folder / "chat", seed=0)
    return [
        f"model.path={folder}/chat",
        f"data.train_files=[{folder}/games/train.parquet]",
        f"environment.path={folder}/slow.py:SlowAnswers",
        "environment.max_turns=3",
        "environment.max_turn_tokens=16",
        "data.max_prompt_length=8",
        "data.max_response_length=96",
        "data.train_batch_size=16",
        "actor.mini_batch_size=16",
        "rollout.n=8",
        f"trainer.output_dir={folder}",
    ]


def skewed_lengths(folder: Path) -> list[str]:
    """Write a model whose responses have very different lengths, and prompts; return the overrides of its runs."""
    work = WORKLOADS["sampled"]
    write_model(folder / "model", work)
    write_prompts(folder)
    return overrides(folder, work)


CASES = {"env_waits": ("async", slow_environment), "lengths": ("one_step_off", skewed_lengths)}


def steps_of(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of the steps after the warm-up."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return lines[WARM_UP_STEPS:]


def steps_per_hour(folder: Path) -> float:
    measured = steps_of(folder)
    return 3600 * (len(measured) - 1) / (measured[-1]["progress/unix_s"] - measured[0]["progress/unix_s"])


def bubble(folder: Path) -> float:
    """Return the idle share of the pool that is idle most, after the warm-up."""
    idle, total = defaultdict[str, float](float), defaultdict[str, float](float)
    for line in map(json.loads, (folder / "ledger.jsonl").read_text().splitlines()):
        pool = line["process"].partition(" ")[0]
        if pool in ("worker", "engine") and line["step"] > WARM_UP_STEPS:
            total[pool] += sum(line["seconds"].values())
            idle[pool] += sum(line["seconds"].get(name, 0.0) for name in WAITS)
    return max(idle[pool] / total[pool] for pool in ("worker", "engine"))


def run(folder: Path, name: str, words: list[str], *, steps: int) -> Path:
    """Train; return the run's folder."""
    composed = compose(None, [*words, f"trainer.experiment_name={name}", f"trainer.total_training_steps={steps}"])
    jobs.train(composed.config, composed.yaml())
    return folder / name


def compared(folder: Path, case: str, *, rounds: int, steps: int) -> dict[str, Any]:
    """Return the speed-up of a schedule over sync, from alternating runs."""
    schedule, prepared = CASES[case]
    words = [*prepared(folder), *PLACED]
    speeds, bubbles = defaultdict[str, list[float]](list), list[float]()
    for number in range(rounds):
        for each in ("sync", schedule) if number % 2 == 0 else (schedule, "sync"):
            found = run(folder, f"{case}-{each}-{number}", [*words, *SCHEDULES[each]], steps=steps)
            speeds[each].append(steps_per_hour(found))
            if each == schedule:
                bubbles.append(bubble(found))
    return {
        "speedup": median(speeds[schedule]) / median(speeds["sync"]),
        "bubble_frac": median(bubbles),
        "steps_per_hour": {name: round(median(found)) for name, found in speeds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        found = {case: compared(folder, case, rounds=arguments.rounds, steps=arguments.steps) for case in CASES}
    print(
        json.dumps(
            {
                "speedup_env_waits": found["env_waits"]["speedup"],
                "speedup_one_step_off": found["lengths"]["speedup"],
                "bubble_frac": max(each["bubble_frac"] for each in found.values()),
                "cases": found,
            }
        )
    )


if __name__ == "__main__":
    main()
