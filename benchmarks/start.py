"""Time a small GRPO run from the command to its first step, phase by phase: ``python -m benchmarks.start``.

Runs the command that a user types, with the arithmetic recipe's model and no validation. Also measures how soon a
command with a wrong recipe is refused. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from benchmarks._machine import print_result
from benchmarks._recipe import RECIPE, arithmetic

ROUNDS = 5
LIMIT_S = 300.0
FIRST_STEP = "taking the first step"
CHECKS = "checking the configuration"  # the command prints nothing before this phase
COMMAND = [sys.executable, "-m", "verl_like", "train", RECIPE]
# If bytecode is not kept, each process compiles the package again; an installed package is already compiled.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def phases(overrides: list[str]) -> dict[str, float]:
    """Return the seconds of each phase before the first step, from the lines printed as a phase begins."""
    begun = time.perf_counter()
    lines: list[str] = []
    found: dict[str, float] = {}
    with subprocess.Popen(
        [*COMMAND, *overrides], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        deadline = threading.Timer(LIMIT_S, run.kill)
        deadline.start()
        what, since = CHECKS, begun
        for line in run.stderr:
            lines.append(line)
            stamp, bracket, phase = line.partition(" s] ")
            if stamp.startswith("[") and bracket and not phase.startswith("still "):
                now = time.perf_counter()
                found[what] = found.get(what, 0.0) + now - since
                what, since = phase.strip(), now
        status = run.wait(LIMIT_S)
        deadline.cancel()
    assert status == 0, "".join(lines)
    assert what == FIRST_STEP, "".join(lines)
    return found


def refused_s() -> float:
    """Return the seconds until a misspelt option is reported."""
    begun = time.perf_counter()
    ended = subprocess.run(
        [*COMMAND, "rollout.nn=3"], env=ENVIRONMENT, capture_output=True, timeout=LIMIT_S, check=False
    )
    assert ended.returncode == 2, ended.stderr
    return time.perf_counter() - begun


def measure(folder: Path, rounds: int) -> dict[str, object]:
    """Return medians over the rounds."""
    overrides = [*arithmetic(folder), "trainer.total_training_steps=1"]
    phases([*overrides, "trainer.experiment_name=warm-up"])  # compiles bytecode and reads files once
    runs = [phases([*overrides, f"trainer.experiment_name=round-{i}"]) for i in range(rounds)]
    refusals = [refused_s() for _ in range(rounds)]
    return {
        "start_s": round(median(sum(run.values()) for run in runs), 2),
        "phases_s": {what: round(median(run[what] for run in runs), 2) for what in runs[0]},
        "refused_s": round(median(refusals), 2),
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        print_result(measure(Path(folder), rounds))


if __name__ == "__main__":
    main()
