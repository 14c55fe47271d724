"""Find how many ranks one driver supports: ``python -m benchmarks.scale_sim [--model 7B] [--device H100]``.

Measures the driver's cost of a PPO step over 1 to 1,024 simulated ranks, eight to a node (``_simulated.py``).
``verl-like plan`` gives the time that the devices take for such a step. The ratio of the two is an upper bound of what
the driver adds to a run, since most of its seconds pass while workers are busy.

``--pools 64 448`` measures the schedule async over 64 ranks that train and 448 engines in separate workers as well
(``_simulated_pools.py``). Prints a table, and one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import plan_table
from benchmarks._idle import step_config
from benchmarks._machine import print_result
from benchmarks._simulated import RANKS_PER_NODE, ROWS_PER_RANK, StepCost, cost_of, step_cost
from benchmarks._simulated_pools import simulated_pools
from verl_like.plan.devices import named
from verl_like.plan.run_plan import plan_of, shapes_of
from verl_like.plan.stages import Location

RANKS = (1, 8, 64, 256, 1024)
POOLS = (64, 448)
MAX_SHARE = 0.05  # of a step; above it, the driver counts as a bottleneck
PROMPT_TOKENS, MAX_RESPONSE_TOKENS = 1024, 4096


def planned_s(model: str, device: str, ranks: int, pools: tuple[int, int] | None = None) -> float:
    """Return the seconds of a step on so many devices, with responses of 2,000 tokens on average.

    Args:
        pools: devices that train and that generate, which then overlap.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan_table.write(Path(folder), model)
        config = step_config(ranks * ROWS_PER_RANK)
        config.model.path = folder
        config.data.max_prompt_length, config.data.max_response_length = PROMPT_TOKENS, MAX_RESPONSE_TOKENS
        config.rollout.tensor_parallel_size = min(plan_table.MODELS[model][-1], ranks)
        if pools is not None:
            config.cluster.placement = {"trainer": pools[0], "rollout": pools[1]}
            config.trainer.schedule = "async"
        place = Location(device=named(device), ranks=ranks, ranks_per_node=min(ranks, RANKS_PER_NODE))
        return plan_of(config, shapes_of(config), place, response_tokens=plan_table.RESPONSE_TOKENS).step_s


def most_ranks(shares: dict[int, float]) -> int | None:
    """Extrapolate the number of ranks at which the driver's share of a step exceeds ``MAX_SHARE``."""
    ranks = sorted(shares)[-2:]
    slope = np.diff(np.log([shares[n] for n in ranks]))[0] / np.diff(np.log(ranks))[0]
    if slope <= 0:
        return None
    return int(ranks[-1] * (MAX_SHARE / shares[ranks[-1]]) ** (1 / slope))


def table(costs: dict[str, StepCost], steps: dict[str, float], title: str) -> Table:
    shown = Table(title=title)
    for name in ("ranks", "devices s", "driver CPU s", "share", "references", "store MB", "driver grows by MB"):
        shown.add_column(name, justify="right")
    for ranks, cost in costs.items():
        shown.add_row(
            ranks,
            f"{steps[ranks]:.0f}",
            f"{cost.driver_s:.2f}",
            f"{cost.driver_s / steps[ranks]:.2%}",
            f"{cost.references}",
            f"{cost.store_mb:.0f}",
            f"{cost.growth_mb:.1f}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--model", choices=plan_table.MODELS, default="7B")
    parser.add_argument("--device", default="H100")
    parser.add_argument("--pools", type=int, nargs=2, default=POOLS, metavar=("TRAINER", "ENGINES"))
    arguments = parser.parse_args()
    model, device = arguments.model, arguments.device
    trainer, engines = arguments.pools
    steps = {str(n): planned_s(model, device, n) for n in sorted(arguments.ranks)}
    costs = {n: step_cost(int(n)) for n in steps}
    pools = f"{trainer} + {engines}"
    steps[pools] = planned_s(model, device, trainer + engines, (trainer, engines))
    costs[pools] = cost_of(simulated_pools(trainer, engines))
    shares = {n: cost.driver_s / steps[n] for n, cost in costs.items()}
    Console().print(table(costs, steps, f"PPO with a critic, {model} on {device}, {ROWS_PER_RANK} rows a rank"))
    colocated = {int(n): share for n, share in shares.items() if n != pools}
    print_result(
        {
            "model": model,
            "device": device,
            "ranks": list(costs),
            "step_s": {n: round(steps[n], 1) for n in costs},
            "driver_cpu_s": {n: round(cost.driver_s, 3) for n, cost in costs.items()},
            "driver_share": {n: round(share, 5) for n, share in shares.items()},
            "references": {n: cost.references for n, cost in costs.items()},
            "store_mb": {n: round(cost.store_mb, 1) for n, cost in costs.items()},
            "ranks_at_5_percent": most_ranks(colocated) if len(colocated) > 1 else None,
        }
    )


if __name__ == "__main__":
    main()
