"""Time log-probs of chosen tokens, forward and backward: ``python -m benchmarks.log_probs [--entropy]``.

Computes 4,096 rows of 256 dimensions over a vocabulary of 150,000 from hidden states, in float32. Ours is compared with
whole logits (``log_softmax``) and with PyTorch's ``cross_entropy``. All alternate. The peak bytes that torch allocates
are counted in a separate run.
Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks._allocated import most_allocated
from benchmarks._machine import print_result, use_machine_libraries
from verl_like.config.schema import ActorConfig
from verl_like.ops.log_probs import TokenStatsFunction
from verl_like.ops.tiles import OutputLayer

ROWS, HIDDEN_SIZE, VOCABULARY = 4096, 256, 150_000
ROUNDS, WARM_UPS = 5, 1

Way = Callable[[Tensor, nn.Parameter, Tensor], Tensor]  # its result is summed up for the backward pass


def ways(*, entropy: bool) -> dict[str, Way]:
    function = TokenStatsFunction(budget_mib=ActorConfig().logits_mib)

    def ours(hidden: Tensor, weight: nn.Parameter, targets: Tensor) -> Tensor:
        stats = function(hidden, OutputLayer(weight=weight), targets, temperature=1.0, entropy=entropy)
        return stats.log_probs if stats.entropy is None else stats.log_probs + stats.entropy

    def whole(hidden: Tensor, weight: nn.Parameter, targets: Tensor) -> Tensor:
        log_probs = torch.log_softmax(hidden @ weight.t(), -1)
        chosen = log_probs.gather(-1, targets[:, None])[:, 0]
        return chosen - (log_probs.exp() * log_probs).sum(-1) if entropy else chosen

    def cross_entropy(hidden: Tensor, weight: nn.Parameter, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(hidden @ weight.t(), targets, reduction="none")

    found: dict[str, Way] = {"own": ours, "whole": whole}
    return found if entropy else {**found, "cross_entropy": cross_entropy}


def measured(*, entropy: bool) -> dict[str, float]:
    torch.manual_seed(0)
    use_machine_libraries()
    hidden = torch.randn(ROWS, HIDDEN_SIZE, requires_grad=True)
    weight = nn.Parameter(torch.randn(VOCABULARY, HIDDEN_SIZE) / HIDDEN_SIZE**0.5)
    targets = torch.randint(0, VOCABULARY, (ROWS,))
    upstream = torch.linspace(-1, 1, ROWS)  # gradient of a loss that weights every token differently

    def run(way: Way) -> None:
        torch.autograd.grad(way(hidden, weight, targets), [hidden, weight], upstream)

    seconds: dict[str, list[float]] = {}
    found = ways(entropy=entropy)
    for _ in range(WARM_UPS + ROUNDS):
        for name, way in found.items():
            started = time.perf_counter()
            run(way)
            seconds.setdefault(name, []).append(time.perf_counter() - started)
    seconds = {name: values[WARM_UPS:] for name, values in seconds.items()}
    peaks = {}
    for name, way in found.items():
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            run(way)
        peaks[name] = most_allocated(profiled)

    def time_ratio(other: str) -> float:
        return round(median(a / b for a, b in zip(seconds["own"], seconds[other], strict=True)), 3)

    figures = {
        "peak_ratio": round(peaks["own"] / peaks["whole"], 4),
        "time_ratio": time_ratio("whole"),
        **{f"{name}_s": round(median(values), 2) for name, values in seconds.items()},
        **{f"{name}_peak_mib": round(peak / 2**20) for name, peak in peaks.items()},
    }
    if not entropy:
        figures["peak_ratio_cross_entropy"] = round(peaks["own"] / peaks["cross_entropy"], 4)
        figures["time_ratio_cross_entropy"] = time_ratio("cross_entropy")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entropy", action="store_true", help="of the loss as well")
    print_result(measured(entropy=parser.parse_args().entropy))


if __name__ == "__main__":
    main()
