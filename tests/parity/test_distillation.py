"""The divergence from a teacher, compared with TRL 1.16's: equal to 1e-5 in value and gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from verl_like.algorithms.aggregate import aggregate
from verl_like.algorithms.types import BatchTotals
from verl_like.ops.divergence import GeneralisedJsd, States
from verl_like.ops.tiles import OutputLayer

B, T, V, STUDENT_SIZE, TEACHER_SIZE, TEMPERATURE = 3, 7, 211, 8, 12, 0.9


@pytest.fixture(scope="module")
def trl() -> Any:
    return pytest.importorskip("trl.trainer.distillation_trainer", reason="trl is not installed: make peers")


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 1.0])
def test_value_and_gradient_are_those_of_trl(trl: Any, beta: float) -> None:
    generator = torch.Generator().manual_seed(5)
    student, weight = (
        torch.randn(B, T, STUDENT_SIZE, generator=generator),
        torch.randn(V, STUDENT_SIZE, generator=generator),
    )
    teacher, other = (
        torch.randn(B, T, TEACHER_SIZE, generator=generator),
        torch.randn(V, TEACHER_SIZE, generator=generator),
    )
    mask = torch.rand(B, T, generator=generator) < 0.7
    leaves = [student.requires_grad_(), weight.requires_grad_()]
    theirs, _, _ = trl._chunked_divergence_loss(student, teacher, weight, other, mask, beta, temperature=TEMPERATURE)
    expected = torch.autograd.grad(theirs, leaves)
    kind = GeneralisedJsd(beta=beta, temperature=TEMPERATURE, budget_mib=1)
    divergence = kind(
        States(student.flatten(0, 1), OutputLayer(weight=weight)),
        States(teacher.flatten(0, 1), OutputLayer(weight=other)),
    )
    totals = BatchTotals(num_tokens=float(mask.sum()), num_sequences=B, max_response_tokens=T)
    ours = aggregate(divergence.view(B, T), mask, "token-mean", totals)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    for found, gradient in zip(torch.autograd.grad(ours, leaves), expected, strict=True):
        torch.testing.assert_close(found, gradient, rtol=1e-5, atol=1e-5)
