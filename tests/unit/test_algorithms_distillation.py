"""The terms of distillation, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from verl_like.algorithms.actor_loss import ActorLoss
from verl_like.algorithms.distillation import Distillation, finish
from verl_like.algorithms.roles import needs, step_columns, update_columns
from verl_like.algorithms.types import BatchTotals, LossOutput
from verl_like.config.schema import ActorConfig, AlgorithmConfig, Config

NOW, OLD, TEACHER = [-1.0, -2.0, -9.0], [-1.2, -1.9, -9.0], [-0.5, -3.0, -9.0]
ADVANTAGE = 0.3


def loss(
    distillation: Distillation, divergence: Tensor | None = None, **options: str
) -> tuple[LossOutput, list[float]]:
    """Return the loss of one response of two tokens, and the gradient with respect to the log-probs."""
    log_probs = torch.tensor([NOW], dtype=torch.float64, requires_grad=True)
    columns = {
        "response_mask": torch.tensor([[True, True, False]]),
        "old_log_probs": torch.tensor([OLD], dtype=torch.float64),
        "ref_log_probs": torch.tensor([TEACHER], dtype=torch.float64),
        "advantages": torch.full((1, 3), ADVANTAGE, dtype=torch.float64),
    }
    outputs = {"log_probs": log_probs} | ({} if divergence is None else {"divergence": divergence})
    totals = BatchTotals(num_tokens=2, num_sequences=1, max_response_tokens=3)
    found = ActorLoss(ActorConfig(**options), distillation=distillation)(outputs, columns, totals)
    torch.autograd.backward(found.loss)
    assert log_probs.grad is not None
    return found, log_probs.grad[0].tolist()


def test_pg_adds_the_log_ratio_of_the_teacher_to_the_old_policy_to_each_advantage() -> None:
    found, gradient = loss(Distillation(0.5, "pg"), policy_loss="reinforce")
    gaps = [teacher - old for teacher, old in zip(TEACHER, OLD, strict=True)][:2]
    assert gradient == pytest.approx([-(ADVANTAGE + 0.5 * gap) / 2 for gap in gaps] + [0.0])
    assert float(found.metrics["actor/distill_loss"]) == pytest.approx(-sum(gaps) / 2)


def test_jsd_adds_the_divergence_to_the_loss_under_the_aggregation() -> None:
    divergence = torch.tensor([[0.2, 0.4, 7.0]], dtype=torch.float64, requires_grad=True)
    plain, _ = loss(Distillation(0.0, "pg"))
    found, _ = loss(Distillation(0.5, "jsd"), divergence, loss_aggregation="seq-mean-token-sum")
    without, _ = loss(Distillation(0.0, "pg"), loss_aggregation="seq-mean-token-sum")
    assert float((found.loss - without.loss).detach()) == pytest.approx(0.5 * (0.2 + 0.4))
    assert divergence.grad is not None and divergence.grad[0].tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert float(found.metrics["actor/distill_loss"]) == pytest.approx((0.2 + 0.4) / 2)
    assert "actor/distill_loss" in plain.metrics


def config(**options: object) -> Config:
    return Config(algorithm=AlgorithmConfig(**options))  # type: ignore[arg-type]


def test_pg_needs_the_teachers_log_probs_and_jsd_the_teacher_only() -> None:
    pg, jsd = config(distill_coef=1.0), config(distill_coef=1.0, distill_loss="jsd")
    assert needs(pg).ref and needs(pg).ref_log_probs and "ref_log_probs" in update_columns(pg)
    assert needs(jsd).ref and not needs(jsd).ref_log_probs
    assert "ref_log_probs" not in (*update_columns(jsd), *step_columns(jsd))
    assert not needs(config(distill_loss="jsd")).ref


def test_a_teacher_that_sees_more_reads_its_own_prompts() -> None:
    for teacher in ("base", "self", "ema"):
        pg = config(distill_coef=1.0, distill_teacher=teacher)
        jsd = config(distill_coef=1.0, distill_teacher=teacher, distill_loss="jsd")
        assert needs(pg).ref_log_probs and needs(jsd).ref and not needs(jsd).ref_log_probs
        assert "teacher_prompt_ids" in step_columns(pg) and "teacher_prompt_ids" in step_columns(jsd)
        # The stage ref_log_probs reads them for pg, and the updates for jsd.
        assert "teacher_prompt_ids" not in update_columns(pg) and "teacher_prompt_ids" in update_columns(jsd)
        assert pg.ref_is_actor == (teacher == "self") and pg.ref_changes == (teacher == "ema")
    assert "teacher_prompt_ids" not in step_columns(config(distill_coef=1.0))


def test_without_a_coefficient_nothing_is_distilled() -> None:
    assert Distillation.of(AlgorithmConfig()) is None
    assert Distillation.of(AlgorithmConfig(distill_coef=2.0)) == Distillation(2.0, "pg")


@pytest.mark.parametrize("kind", ["pg", "jsd"])
def test_a_missing_input_is_named(kind: str) -> None:
    columns = {name: torch.zeros(1, 1) for name in ("old_log_probs", "advantages")}
    columns["response_mask"] = torch.ones(1, 1, dtype=torch.bool)
    totals = BatchTotals(num_tokens=1, num_sequences=1, max_response_tokens=1)
    with pytest.raises(AssertionError, match=f"algorithm.distill_loss={kind}, but the"):
        ActorLoss(ActorConfig(), distillation=Distillation(1.0, kind))(
            {"log_probs": torch.zeros(1, 1)}, columns, totals
        )


def test_each_teacher_has_the_mean_over_its_own_tokens() -> None:
    """Three rows of two tokens; the second token of the last is masked, and the third teacher has no rows."""
    mask = torch.tensor([[True, True], [True, True], [True, False]])
    divergence = torch.tensor([[0.1, 0.3], [1.0, 2.0], [6.0, 9.0]], dtype=torch.float64)
    columns = {
        "response_mask": mask,
        "old_log_probs": torch.zeros(3, 2, dtype=torch.float64),
        "advantages": torch.zeros(3, 2, dtype=torch.float64),
        "teacher": torch.tensor([0, 1, 1]),
    }
    shares: dict[str, float] = {}
    several = Distillation(1.0, "jsd", ("math", "code", "chat"))
    for rows in ([0, 2], [1]):  # in two micro-batches
        outputs = {"log_probs": torch.zeros(len(rows), 2, dtype=torch.float64), "divergence": divergence[rows]}
        of_rows = {name: column[rows] for name, column in columns.items()}
        totals = BatchTotals(num_tokens=5, num_sequences=3, max_response_tokens=2)
        for name, value in ActorLoss(ActorConfig(), distillation=several)(outputs, of_rows, totals).metrics.items():
            shares[name] = shares.get(name, 0.0) + float(value)
    found = {name: value for name, value in finish(shares, prefix="actor/").items() if "distill" in name}
    assert found == pytest.approx(
        {
            "actor/distill_loss": 9.4 / 5,
            "actor/distill_loss/math": 0.2,
            "actor/distill_loss/code": 3.0,
            "actor/distill_tokens_frac/math": 0.4,
            "actor/distill_tokens_frac/code": 0.6,
            "actor/distill_tokens_frac/chat": 0.0,
        }
    )
