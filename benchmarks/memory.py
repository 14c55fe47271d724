"""Measure memory growth during a run, and the peak of log-probs: ``python -m benchmarks.memory [--steps N]``.

Observes PPO with a critic and a reference on two workers, started as a user starts it, from outside. Then runs
``log_probs.py``. ``--steps 0`` leaves the run out. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import linear_regression, median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import log_probs
from benchmarks._machine import print_result
from recipes.arithmetic.model import write_model
from tests.chaos.scene import REWARD, Run, started

NUM_PROMPTS = 4096
WARM_UP_STEPS = 20
SAMPLE_EVERY_S = 0.2
MIN_SAMPLES = 10  # samples of a process needed for a slope
MIB = 2**20
# A step leaves a few small answers in the store. Their sizes vary with the digits in them.
STORE_TOLERANCE_BYTES = 64 * 2**10

Level = tuple[int, int, int]  # step, resident bytes, private bytes among them


def measure(folder: Path, steps: int, changes: dict[str, str]) -> dict[str, object]:
    """Run so many steps, and return what grew.

    Resident memory includes mapped pages of the object store and of libraries; private memory does not.
    """
    prepare(folder / "data")
    with started(folder / "data", folder, "run", {**settings(steps), **changes}) as run:
        levels = watch(run, steps)
        assert run.process.returncode == 0, run.output[-3000:]
        processes_left, names_left = run.survivors(), run.leaked()
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    slopes = {who: round(slope(of, 1), 4) for who, of in levels.items()}
    worst = max(slopes, key=lambda who: slopes[who])
    return {
        "steps": len(rows),
        "step_s": round(median(row["time/step_s"] for row in rows[WARM_UP_STEPS:]), 4),
        "rss_slope_mb_per_step": slopes[worst],
        "worst_process": worst,
        "by_process": {
            who: {
                "rss_slope_mb_per_step": slopes[who],
                "private_slope_mb_per_step": round(slope(of, 2), 4),
                "rss_mb_first": round(of[0][1] / MIB, 1),
                "rss_mb_last": round(of[-1][1] / MIB, 1),
            }
            for who, of in levels.items()
        },
        "store_level_flat": is_store_flat(rows[WARM_UP_STEPS:]),
        "shm_clean": not names_left,
        "processes_left": len(processes_left),
    }


def prepare(data: Path) -> None:
    """Write model, prompts and reward function; prompts are sums of 2 to 12 numbers, about 5 to 40 characters."""
    data.mkdir(parents=True)
    rng = np.random.default_rng(0)
    addends = [rng.integers(0, 100, size=rng.integers(2, 13)) for _ in range(NUM_PROMPTS)]
    rows = {
        "prompt": ["+".join(map(str, of)) + "=" for of in addends],
        "answer": [str(of.sum()) for of in addends],
        "data_source": ["sums"] * NUM_PROMPTS,
    }
    for name in ("train", "val"):
        pq.write_table(pa.table(rows), data / f"{name}.parquet")
    write_model(data / "model", seed=0)
    (data / "reward.py").write_text(REWARD)


def settings(steps: int) -> dict[str, str]:
    """Return options under which tokens and running sequences differ from step to step, as in real runs."""
    return {
        "data.train_batch_size": "32",
        "data.max_prompt_length": "40",
        "data.max_response_length": "12",
        "actor.mini_batch_size": "16",
        "critic.mini_batch_size": "16",
        "rollout.n": "4",
        "trainer.total_training_steps": str(steps),
        "trainer.test_freq": "0",
        "trainer.save_freq": "0",
        "trainer.stall_after_s": "60",
        "trainer.stage_timeout_s": "300",
    }


def watch(run: Run, steps: int) -> dict[str, list[Level]]:
    """Sample the memory of every process from the end of the warm-up to the last step.

    The model and curves are written after that step.
    """
    levels: dict[str, list[Level]] = defaultdict(list)
    names: dict[int, str] = {}
    while run.process.poll() is None:
        step = len(run.steps())
        run.record_processes()
        if WARM_UP_STEPS < step < steps:
            names |= {reading.pid: reading.who for reading in run.readings().values()}
            for pid in (run.process.pid, *run.members):
                if (level := resident(pid)) is not None:
                    name = names.setdefault(pid, command(pid))
                    levels[name].append((step, *level))
        time.sleep(SAMPLE_EVERY_S)
    return {who: of for who, of in levels.items() if len(of) >= MIN_SAMPLES and of[0][0] < of[-1][0]}


def resident(pid: int) -> tuple[int, int] | None:
    """Return the resident bytes and the private bytes among them; None if the process has ended."""
    try:
        _, all_pages, shared_pages, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except OSError:
        return None
    page = os.sysconf("SC_PAGE_SIZE")
    return (all_pages * page, (all_pages - shared_pages) * page) if all_pages else None


def command(pid: int) -> str:
    """Name a process that has no name of ours: the end of its program, and its id."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").split()
    except OSError:
        words = []
    names = [Path(word).name for word in words if not word.startswith("-")][:2]
    return f"{' '.join(names)} ({pid})"


def slope(levels: list[Level], which: int) -> float:
    """Return MiB per step, by least squares."""
    return linear_regression([level[0] for level in levels], [level[which] / MIB for level in levels]).slope


def is_store_flat(rows: list[dict[str, float]]) -> bool:
    """Return whether the store and the driver's references return to their level after the warm-up."""
    quarter = max(len(rows) // 4, 1)

    def growth(values: list[float]) -> float:
        return median(values[-quarter:]) - median(values[:quarter])

    used = growth([row["store/used_bytes"] for row in rows])
    # One reference for each block of the batch; the number of blocks depends on which responses finish together.
    references = growth([row["store/live_references"] - row["store/blocks"] for row in rows])
    return used <= STORE_TOLERANCE_BYTES and references <= 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="of the configuration")
    arguments = parser.parse_args()
    changes = dict(change.split("=", 1) for change in arguments.changes)
    found: dict[str, object] = {}
    if arguments.steps:
        with tempfile.TemporaryDirectory() as folder:
            found |= measure(Path(folder), arguments.steps, changes)
    found |= log_probs.measured(entropy=False)
    print_result(found)


if __name__ == "__main__":
    main()
