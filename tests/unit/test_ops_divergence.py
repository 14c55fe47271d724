"""The divergence of two models in tiles, against whole logits in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from verl_like.ops.divergence import GeneralisedJsd, States
from verl_like.ops.tiles import OutputLayer

K, V, STUDENT_SIZE, TEACHER_SIZE = 300, 3000, 8, 12
TEMPERATURE = 0.7


def states(size: int, vocabulary: int, *, seed: int, bias: bool = False, softcap: float = 0.0) -> States:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    layer = OutputLayer(weight=0.3 * draw(vocabulary, size), bias=draw(vocabulary) if bias else None, softcap=softcap)
    return States(draw(K, size), layer)


def log_probs(states: States, size: int) -> Tensor:
    layer = states.layer.first(size)
    logits = states.hidden.double() @ layer.weight.double().t()
    logits = logits if layer.bias is None else logits + layer.bias.double()
    if layer.softcap:
        logits = layer.softcap * (logits / layer.softcap).tanh()
    return (logits / TEMPERATURE).log_softmax(-1)


def expected(student: States, teacher: States, beta: float) -> Tensor:
    """Return the definition, on whole logits."""
    size = min(len(student.layer.weight), len(teacher.layer.weight))
    s, t = log_probs(student, size), log_probs(teacher, size)
    if beta in (0, 1):
        first, second = (t, s) if beta == 0 else (s, t)
        return (first.exp() * (first - second)).sum(-1)
    mixed = ((1 - beta) * s.exp() + beta * t.exp()).log()
    return beta * (t.exp() * (t - mixed)).sum(-1) + (1 - beta) * (s.exp() * (s - mixed)).sum(-1)


def learning(states: States) -> list[Tensor]:
    layer = states.layer
    found = [states.hidden, layer.weight] + ([] if layer.bias is None else [layer.bias])
    for each in found:
        each.requires_grad_().grad = None
    return found


@pytest.mark.parametrize("budget_mib", [1, 512])  # tiles that are computed again, and tiles that are kept
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["plain", "bias and softcap", "smaller teacher", "smaller student"])
def test_value_and_gradient_are_those_of_whole_logits(kind: str, beta: float, budget_mib: int) -> None:
    more = {"bias": True, "softcap": 2.0} if kind == "bias and softcap" else {}
    student = states(STUDENT_SIZE, V - 7 * (kind == "smaller student"), seed=1, **more)
    teacher = states(TEACHER_SIZE, V - 7 * (kind == "smaller teacher"), seed=2, **more)
    weights = torch.rand(K, generator=torch.Generator().manual_seed(3))
    inputs = learning(student)
    whole = expected(student, teacher, beta)
    wanted = torch.autograd.grad((whole * weights).sum(), inputs)
    found = GeneralisedJsd(beta=beta, temperature=TEMPERATURE, budget_mib=budget_mib)(student, teacher)
    torch.testing.assert_close(found.double(), whole, rtol=1e-4, atol=1e-5)
    torch.autograd.backward((found * weights).sum())
    for each, gradient in zip(inputs, wanted, strict=True):
        assert each.grad is not None
        torch.testing.assert_close(each.grad, gradient.float(), rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


def test_equal_models_have_no_divergence_and_no_gradient() -> None:
    student = states(STUDENT_SIZE, V, seed=1)
    teacher = States(student.hidden.clone(), student.layer.detached())
    inputs = learning(student)
    for beta in (0.0, 0.5, 1.0):
        found = GeneralisedJsd(beta=beta, temperature=1.0, budget_mib=1)(student, teacher)
        assert float(found.detach().abs().max()) < 1e-5
        gradients = torch.autograd.grad(found.sum(), inputs)
        assert max(float(gradient.abs().max()) for gradient in gradients) < 1e-3


def test_an_impossible_token_of_the_teacher_gives_a_finite_divergence() -> None:
    student, teacher = states(STUDENT_SIZE, V, seed=1, bias=True), states(TEACHER_SIZE, V, seed=2, bias=True)
    assert teacher.layer.bias is not None
    teacher.layer.bias[:10] = -torch.inf
    inputs = learning(student)
    found = GeneralisedJsd(beta=0.5, temperature=1.0, budget_mib=1)(student, teacher)
    assert found.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found.sum(), inputs))
