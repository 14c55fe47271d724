"""Measure the part of a step that is neither engine nor model: ``python -m benchmarks.overhead``.

Runs steps of GRPO on the real stack: those of the arithmetic recipe (a fifth of a second) and of a model of 30 million
parameters (seconds). Work is, for each stage that generates, scores tokens or updates, the time that its slowest rank
records itself. The rest of the step is overhead: the driver's stages, transfers between driver and workers, weight
syncs, waiting. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks._machine import print_result
from benchmarks._recipe import RECIPE, arithmetic, model_of_its_own
from benchmarks.e2e import WORKLOADS
from verl_like.config.compose import compose
from verl_like.training import jobs as run

WARM_UP_STEPS = 3  # first rollouts and allocations are slower, and do not matter in a long run
WORK = frozenset({"rollout", "old_log_probs", "ref_log_probs", "values", "update_actor", "update_critic"})


def large(folder: Path) -> list[str]:
    """Configure 128 responses of 48 tokens by 30 million parameters, so that a step takes more than five seconds."""
    return model_of_its_own(folder, replace(WORKLOADS["30m"], prompts=16))


def split(folder: Path) -> list[dict[str, float]]:
    """Return for each step after the warm-up its seconds (``step``), its work (``work``), and the overhead by stage."""
    steps = {line["step"]: line for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())}
    by_step: dict[int, list[dict[str, float]]] = defaultdict(list)
    for line in map(json.loads, (folder / "ledger.jsonl").read_text().splitlines()):
        if line["process"].startswith("worker rank"):
            by_step[line["step"]].append(line["seconds"])
    found = []
    for step in sorted(steps)[WARM_UP_STEPS:]:
        seconds = {name[5:-2]: value for name, value in steps[step].items() if name.startswith("time/")}
        work = {stage: max(rank.get(stage, 0.0) for rank in by_step[step]) for stage in WORK & seconds.keys()}
        rest = {stage: s - work.get(stage, 0.0) for stage, s in seconds.items() if stage != "step"}
        found.append({"step": seconds["step"], "work": sum(work.values()), **rest})
    return found


def measure(name: str, steps: int) -> dict[str, float | dict[str, float]]:
    """Return medians over the steps."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        recipe, words = (RECIPE, arithmetic(folder)) if name == "arithmetic" else (None, large(folder))
        ends = ["trainer.experiment_name=run", f"trainer.total_training_steps={steps}"]
        composed = compose(recipe, [*words, *ends])
        run.train(composed.config, composed.yaml())
        rows = split(folder / "run")
    stages = sorted({stage for row in rows for stage in row} - {"step", "work"})
    return {
        "steps": len(rows),
        "step_s": round(median(row["step"] for row in rows), 4),
        "overhead_ms": round(1000 * median(row["step"] - row["work"] for row in rows), 1),
        "overhead_frac": round(median(1 - row["work"] / row["step"] for row in rows), 4),
        "ms_by_stage": {stage: round(1000 * median(row.get(stage, 0.0) for row in rows), 1) for stage in stages},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="of the arithmetic recipe; a sixth of them of the other")
    steps = parser.parse_args().steps
    small, big = measure("arithmetic", steps), measure("30M", WARM_UP_STEPS + max(steps // 6, 5))
    print_result(
        {
            "overhead_frac": big["overhead_frac"],
            "overhead_ms_arithmetic": small["overhead_ms"],
            "by_workload": {"arithmetic": small, "30M": big},
        }
    )


if __name__ == "__main__":
    main()
