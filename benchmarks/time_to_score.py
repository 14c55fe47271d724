"""Compare the arithmetic recipe with TRL: ``PYTHONPATH=.peers python -m benchmarks.time_to_score`` (``make peers``).

Each contender is the command that a user types. All have the same warm start, prompts, group size, learning rate and
schedule. They validate every five steps; the time of this, and of the checkpoint that ours then writes, does not
count. TRL runs in one process of two threads and in two of one; for each figure the better of them counts. A run ends
at the first validation that reaches 0.8. The contenders alternate for each seed. Prints one JSON object as its last
line:

- ``step_ratio_short``: TRL's seconds of a step over ours;
- ``training_ratio``: its seconds of all steps until the score over ours;
- ``from_command_ratio``: the same from the command, with start-up.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._machine import print_result
from benchmarks._peer_trl import free_port
from benchmarks.start import COMMAND, ENVIRONMENT

SEEDS = (1, 2, 3)
TARGET, EVERY = 0.8, 5  # held-out mean@16; steps between validations
WARM_UP_STEPS = 3  # first rollouts and allocations are slower
LIMIT_S = 600.0  # of a run
POLL_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The seconds of a run, without validation.

    Args:
        start_s: from the command to the first step.
        step_s: of each step.
        scores: held-out score after this many steps.
    """

    start_s: float
    step_s: list[float]
    scores: dict[int, float]

    @property
    def steps(self) -> int:
        """The number of steps until the score was reached."""
        reached = [step for step, score in self.scores.items() if score >= TARGET]
        assert reached, f"no validation reached {TARGET}: {self.scores}"
        return min(reached)

    @property
    def typical_step_s(self) -> float:
        return median(self.step_s[WARM_UP_STEPS:])

    @property
    def training_s(self) -> float:
        return sum(self.step_s[: self.steps])

    @property
    def from_command_s(self) -> float:
        return self.start_s + self.training_s


def own(folder: Path, seed: int) -> Timeline:
    """Run our command until the score is reached."""
    name = f"own-{seed}"
    words = [
        f"trainer.seed={seed}",
        f"trainer.output_dir={folder}",
        f"trainer.experiment_name={name}",
        f"trainer.test_freq={EVERY}",
        "trainer.val_before_train=false",
        "trainer.save_freq=0",
        "trainer.async_save=false",  # the best checkpoint is written before the next step begins
    ]
    metrics, begun = folder / name / "metrics.jsonl", time.time()
    rows: list[dict[str, Any]] = []
    with (
        (folder / f"{name}.log").open("wb") as log,
        subprocess.Popen([*COMMAND, *words], env=ENVIRONMENT, stdout=log, stderr=log) as run,
    ):
        while run.poll() is None and not any(row.get("val/mean@16", 0.0) >= TARGET for row in rows):
            assert time.time() - begun < LIMIT_S, f"{name} did not reach {TARGET} in {LIMIT_S:.0f} s"
            time.sleep(POLL_S)
            rows = read(metrics)
        run.send_signal(signal.SIGINT)
        run.wait(LIMIT_S)
    assert rows, (folder / f"{name}.log").read_text()
    seconds = [row["time/step_s"] for row in rows]
    return Timeline(
        start_s=rows[0]["progress/unix_s"] - seconds[0] - begun,
        step_s=seconds,
        scores={row["step"]: row["val/mean@16"] for row in rows if "val/mean@16" in row},
    )


def read(metrics: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a file that is being written."""
    text = metrics.read_text() if metrics.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def trl(folder: Path, seed: int, *, ranks: int) -> Timeline:
    """Run TRL's trainer in this many processes until the score is reached."""
    command = [sys.executable, "-m", "benchmarks._trl_arithmetic", "--begun", str(time.time())]
    words = ["--seed", str(seed), "--target", str(TARGET), "--every", str(EVERY), "--out", str(folder / "trl")]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    cores = {"OMP_NUM_THREADS": str(2 // ranks), "ACCELERATE_USE_CPU": "true"}
    quiet = {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    processes = [
        subprocess.Popen(
            [*command, *words],
            env={**ENVIRONMENT, **meeting, **cores, **quiet, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        answers = [process.communicate(timeout=LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(process.returncode for process in processes), answers[0][1]
    found = json.loads(answers[0][0].splitlines()[-1])
    return Timeline(
        start_s=found["start_s"],
        step_s=found["step_s"],
        scores={int(step): score for step, score in found["scores"].items()},
    )


def measure(folder: Path, seeds: list[int]) -> dict[str, Any]:
    contenders: dict[str, Callable[[int], Timeline]] = {
        "own": lambda seed: own(folder, seed),
        "trl, 1 of 2 threads": lambda seed: trl(folder, seed, ranks=1),
        "trl, 2 of 1 threads": lambda seed: trl(folder, seed, ranks=2),
    }
    runs: dict[str, list[Timeline]] = {name: [] for name in contenders}
    for seed in seeds:
        for name, run in contenders.items():
            runs[name].append(run(seed))
            print(json.dumps({"seed": seed, "contender": name, **figures(runs[name][-1:])}), flush=True)
    found = {name: figures(each) for name, each in runs.items()}

    def ratio(figure: str) -> float:
        return round(min(each[figure] for name, each in found.items() if name != "own") / found["own"][figure], 2)

    return {
        "step_ratio_short": ratio("step_s"),
        "training_ratio": ratio("training_s"),
        "from_command_ratio": ratio("from_command_s"),
        "seeds": seeds,
        "by_contender": found,
    }


def figures(runs: list[Timeline]) -> dict[str, float]:
    """Return medians over runs."""
    return {
        "step_s": round(median(run.typical_step_s for run in runs), 4),
        "steps": round(median(run.steps for run in runs)),
        "start_s": round(median(run.start_s for run in runs), 2),
        "training_s": round(median(run.training_s for run in runs), 2),
        "from_command_s": round(median(run.from_command_s for run in runs), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    seeds = parser.parse_args().seeds
    prepare = "from recipes.arithmetic.train import RECIPE; raise SystemExit(RECIPE.prepare())"  # reuses a warm start
    subprocess.run([sys.executable, "-c", prepare], env=ENVIRONMENT, stdout=sys.stderr, check=True)
    with tempfile.TemporaryDirectory() as folder:
        print_result(measure(Path(folder), seeds))


if __name__ == "__main__":
    main()
