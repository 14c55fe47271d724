"""Time a GRPO step on the real stack, stage by stage: ``python -m benchmarks.training_step [--steps N]``.

Runs the arithmetic recipe with random weights, so that it needs no warm start. With 2.4 million parameters, it runs 256
responses of 64 tokens, and of up to 256 tokens as sampled (``by_workload``). Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median

from benchmarks._machine import print_result
from benchmarks._recipe import RECIPE, arithmetic, model_of_its_own
from benchmarks.e2e import WORKLOADS
from verl_like.config.compose import compose
from verl_like.training import jobs as run

LARGER = ("fixed", "sampled")
WARM_UP_STEPS = 5  # first rollouts and allocations are slower, and do not matter in a long run


def measure(folder: Path, name: str, steps: int) -> dict[str, object]:
    """Return medians over the steps after the warm-up."""
    if name == "arithmetic":
        recipe, words = RECIPE, arithmetic(folder)
    else:
        recipe, words = None, model_of_its_own(folder, WORKLOADS[name])
    ends = ["trainer.experiment_name=run", f"trainer.total_training_steps={steps}"]
    composed = compose(recipe, [*words, *ends])
    run.train(composed.config, composed.yaml())
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines][WARM_UP_STEPS:]
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
    parser.add_argument("--steps", type=int, default=30, help="of the arithmetic recipe; half of them of the others")
    steps = parser.parse_args().steps
    found = {}
    for name, count in (("arithmetic", steps), *((each, max(steps // 2, WARM_UP_STEPS + 1)) for each in LARGER)):
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measure(Path(folder), name, count)
    print_result({**found["arithmetic"], "by_workload": {name: found[name] for name in LARGER}})


if __name__ == "__main__":
    main()
