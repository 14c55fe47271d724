"""Measure the driver's cost of a step as the cluster grows: ``python -m benchmarks.controller_scaling``.

Uses groups of 8 to 1,024 simulated ranks, eight to a node, and batches in proportion (``_simulated.py``). Prints one
JSON object as its last line.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks._machine import print_result
from benchmarks._simulated import ROWS_PER_RANK, step_cost

RANKS = (8, 64, 256, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    found = {ranks: step_cost(ranks) for ranks in sorted(parser.parse_args().ranks)}
    ranks, costs = list(found), list(found.values())
    seconds = [cost.driver_s for cost in costs]
    exponent = float(np.polyfit(np.log(ranks), np.log(seconds), 1)[0]) if len(ranks) > 1 else None
    print_result(
        {
            "ranks": ranks,
            "rows_per_rank": ROWS_PER_RANK,
            "driver_s": {str(n): round(cost.driver_s, 4) for n, cost in found.items()},
            "wall_s": {str(n): round(cost.wall_s, 4) for n, cost in found.items()},
            "driver_rss_growth_mb": {str(n): round(cost.growth_mb, 4) for n, cost in found.items()},
            "exponent": exponent and round(exponent, 3),
            f"driver_cpu_s_{ranks[-1]}": round(seconds[-1], 3),
        }
    )


if __name__ == "__main__":
    main()
