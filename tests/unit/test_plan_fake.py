"""The plan's memory of updates, held against PyTorch's account of the real engine on fake tensors."""

from __future__ import annotations

import pytest

from benchmarks.plan_fake import Case, cases, in_a_process
from tests._tiers import slow_but

MOST_ERROR = 0.1
CASES = [Case(model="0.5B", ranks=8), Case(model="30B-A3B, 12 layers", ranks=8)]
AT_NIGHT = [
    Case(model="1.5B", ranks=8, lora_rank=32, recomputed=True),
    Case(model="0.5B", ranks=64, sequence_parallel_size=2, kernels="torch"),
    Case(model="0.5B", ranks=8, job="dpo"),
    Case(model="VL 7B", ranks=8),
]


@pytest.mark.parametrize(
    "case",
    slow_but((), ((str(case), (case,)) for case in (*CASES, *AT_NIGHT)), nightly=[str(case) for case in AT_NIGHT]),
)
def test_the_plan_is_near_what_pytorch_counts(case: Case) -> None:
    found = in_a_process(case)
    assert abs(found["error"]) <= MOST_ERROR, found


def test_the_benchmark_covers_models_ranks_recomputation_adapters_and_shared_sequences() -> None:
    found = list(cases())
    assert {(case.model, case.ranks, case.recomputed) for case in found} >= {
        (model, ranks, recomputed)
        for model in ("0.5B", "1.5B", "7B", "32B")
        for ranks in (1, 8, 64)
        for recomputed in (False, True)
    }
    assert any(case.job == "dpo" for case in found)
    assert any(case.lora_rank for case in found) and any(case.sequence_parallel_size == 2 for case in found)
    assert len({str(case) for case in found}) == len(found)
