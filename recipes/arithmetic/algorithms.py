"""Train the recipe with several algorithms: ``python -m recipes.arithmetic.algorithms [PRESET ...]`` prints a table.

Data, model and warm start are those of the recipe; the presets are those of ``conf/algorithm``.
"""

from __future__ import annotations

import json
import sys

from recipes.arithmetic.train import RECIPE
from verl_like.cli import main

PRESETS = ("ppo", "grpo", "dr_grpo", "dapo", "rloo", "reinforce_pp", "gspo")
# Near the end one group in ten has differing scores, so dynamic sampling draws many batches for one.
EXTRA = {"dapo": ["algorithm.max_num_gen_batches=50"]}
AIM = 0.2  # minimum improvement of the held-out mean@16


def run(preset: str) -> dict[str, float]:
    """Train with one preset and return the summary of the run."""
    name = f"algorithm-{preset}"
    status = main(
        [
            "train",
            str(RECIPE.recipe / "grpo.yaml"),
            f"algorithm={preset}",
            f"trainer.experiment_name={name}",
            *EXTRA.get(preset, []),
        ]
    )
    if status:
        raise SystemExit(status)
    summary: dict[str, float] = json.loads((RECIPE.out / name / "summary.json").read_text())
    return summary


def compare(presets: tuple[str, ...]) -> int:
    """Print a row per preset; return exit status 1 if one of them did not improve."""
    found = {preset: run(preset) for preset in presets}
    print("| preset | mean@16 before | after | seconds per step |\n|---|---|---|---|")
    for preset, summary in found.items():
        print(
            f"| `{preset}` | {summary['initial_val']:.3f} | {summary['final_val']:.3f} | "
            f"{summary['seconds_per_step']:.2f} |"
        )
    return int(any(summary["final_val"] < summary["initial_val"] + AIM for summary in found.values()))


if __name__ == "__main__":
    raise SystemExit(RECIPE.prepare() or compare(tuple(sys.argv[1:]) or PRESETS))
