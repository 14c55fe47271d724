"""A GRPO step on the real stack, stage by stage: ``python -m benchmarks.training_step [--steps N]``.

Uses the arithmetic recipe's model with random weights, so it needs no warm start; prints one JSON object as its last
line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median

from benchmarks._recipe import RECIPE, arithmetic
from verl_like.config.compose import compose
from verl_like.trainer import run

WARM_UP_STEPS = 5  # first rollouts and allocations are slower; they are measured by nobody who trains for long


def measure(folder: Path, steps: int) -> dict[str, object]:
    """Medians over the steps after the warm-up."""
    composed = compose(RECIPE, [*arithmetic(folder), f"trainer.total_training_steps={steps}"])
    run.train(composed.config, composed.yaml())
    [path] = folder.glob("*/metrics.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()][WARM_UP_STEPS:]
    stages = sorted({name for row in rows for name in row if name.startswith("time/") and name != "time/step_s"})
    seconds = {name[5:-2]: round(median(row.get(name, 0.0) for row in rows), 4) for name in stages}
    step_s = median(row["time/step_s"] for row in rows)
    return {
        "rows": composed.config.data.train_batch_size * composed.config.rollout.n,
        "tokens": median(row["perf/tokens"] for row in rows),
        "steps": len(rows),
        "step_s": round(step_s, 4),
        "stage_s": seconds,
        "unbooked_frac": round(seconds.get("idle", 0.0) / step_s, 4),
        "tokens_per_s": round(median(row["perf/tokens_per_s"] for row in rows)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), steps)))


if __name__ == "__main__":
    main()
