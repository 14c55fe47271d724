"""Compare the schedules of a step on one trainer and one engine: ``python -m benchmarks.async_speedup``.

All runs have the same model, prompts and workers (cluster.placement={trainer: 1, rollout: 1}), and alternate. With
environments whose answers take 0.3 s, async is compared with sync; with responses of skewed lengths and nothing that
waits, one_step_off is; there the engine decodes few sequences at once, so that generation and learning take equally
long. The bubble is the share of time in which a pool has nothing to do, of the worse pool of that run. Then one
response is a hundred times longer than the others, and the engine's longest pause for a sync is compared with the
median. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._machine import print_result
from benchmarks.e2e import WORKLOADS, overrides, write_model, write_prompts
from recipes.guess_number import prepare as guess_number
from verl_like.backends.base import Sampling
from verl_like.config.compose import compose
from verl_like.data.templates import load_tokenizer
from verl_like.runs.folder import RunFolder
from verl_like.training import jobs
from verl_like.training.build import stack
from verl_like.training.generation import put_prompts
from verl_like.training.tasks import train_prompts
from verl_like.workers.engine_pool import Admission, EnginePool

ROUNDS, STEPS, WARM_UP_STEPS = 3, 12, 3
SHORT, LONGER, NUM_SHORT, NUM_SYNCS = 8, 100, 32, 30
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
    return [*overrides(folder, work), "rollout.max_num_seqs=48"]


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


def is_complete(admission: Admission) -> bool:
    return admission.is_complete


def longest_pause(folder: Path) -> float:
    """Return an engine's longest pause for a sync over the median, while one response outlives all of them."""
    words = [*skewed_lengths(folder), *PLACED, f"data.max_response_length={SHORT * LONGER}"]
    config = compose(None, [*words, "trainer=async", "trainer.experiment_name=long"]).config
    tokenizer, run_folder = load_tokenizer(config.model.tokenizer), RunFolder(config)
    roles = frozenset({"actor", "rollout"})
    with stack(config, tokenizer, run_folder, roles=roles, actor_updates=1, critic_updates=0) as built:
        engines, prompts = built.rollout, train_prompts(config, tokenizer)
        assert isinstance(engines, EnginePool), "the engine has no separate worker"
        version = engines.sync().version

        def admitted(count: int, tokens: int) -> Admission:
            sampling = Sampling(max_tokens=tokens, ignore_eos=True)
            asked = put_prompts([prompts[number] for number in range(count)])
            return engines.admit(
                asked,
                n=1,
                sampling=sampling,
                step=1,
                version=version,
                first_sample=0,
                arrived=lambda facts, block: None,
            )

        long, pauses = admitted(1, SHORT * LONGER), list[float]()
        while len(pauses) < NUM_SYNCS:
            short = admitted(NUM_SHORT, SHORT)
            engines.wait_until(partial(is_complete, short), [short])
            pauses.append(engines.sync().pause_s)
        assert not long.is_complete, "the long response ended before the last sync"
    return max(pauses) / median(pauses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        found = {case: compared(folder, case, rounds=arguments.rounds, steps=arguments.steps) for case in CASES}
        pause = longest_pause(folder)
    print_result(
        {
            "speedup_env_waits": found["env_waits"]["speedup"],
            "speedup_one_step_off": found["lengths"]["speedup"],
            "bubble_frac": found["lengths"]["bubble_frac"],
            "pause_over_median": pause,
            "cases": found,
        }
    )


if __name__ == "__main__":
    main()
