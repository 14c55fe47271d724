"""Aggregation, value and whole losses: hand-computed values and identities. Policy losses and KL have files of their
own.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from verl_like.algorithms.actor_loss import ActorLoss, LogProbGap, SftLoss
from verl_like.algorithms.advantages.whitening import whiten_stats
from verl_like.algorithms.aggregate import aggregate
from verl_like.algorithms.critic_loss import CriticLoss, explained_variance
from verl_like.algorithms.types import BatchTotals, LossOutput, MicroBatchLoss
from verl_like.config.schema import ActorConfig, CriticConfig

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
KINDS = ("k1", "k2", "k3", "abs", "k3+")


def totals_of(mask: Tensor, max_response_tokens: int = 10) -> BatchTotals:
    return BatchTotals(
        num_tokens=float(mask.sum()), num_sequences=float(mask.any(-1).sum()), max_response_tokens=max_response_tokens
    )


NAN = float("nan")

# ---- aggregate


def test_aggregate_by_hand() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0], [10.0, float("nan"), 99.0], [5.0, 5.0, 5.0]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]]).bool()
    expected = {
        "token-mean": 16 / 4,
        "token-sum": 16.0,
        "seq-mean-token-sum": (6 + 10) / 2,
        "seq-mean-token-mean": (2 + 10) / 2,
        "seq-mean-token-sum-norm": (6 / 10 + 10 / 10) / 2,
    }
    for mode, value in expected.items():
        assert float(aggregate(values, mask, mode, totals_of(mask))) == pytest.approx(value), mode


def test_prompt_mean_by_hand() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0], [10.0, NAN, 99.0], [5.0, 5.0, 5.0], [4.0, 6.0, NAN]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]]).bool()
    group_tokens = torch.tensor([4, 4, 4, 2])  # the last row is the only response to its prompt
    totals = replace(totals_of(mask), num_prompts=2.0)
    found = aggregate(values, mask, "prompt-mean", totals, group_tokens=group_tokens)
    assert float(found) == pytest.approx(((1 + 2 + 3 + 10) / 4 + (4 + 6) / 2) / 2)
    parts = [
        aggregate(values[rows], mask[rows], "prompt-mean", totals, group_tokens=group_tokens[rows])
        for rows in ([1, 3], [2], [0])
    ]
    assert float(sum(parts)) == pytest.approx(float(found))


def test_prompt_mean_of_single_responses_is_the_mean_over_responses() -> None:
    columns = columns_of()
    mask, tokens = columns["response_mask"], columns["response_mask"].sum(-1)
    totals = replace(totals_of(mask), num_prompts=5.0)
    found = aggregate(columns["log_probs"], mask, "prompt-mean", totals, group_tokens=tokens)
    assert torch.allclose(found, aggregate(columns["log_probs"], mask, "seq-mean-token-mean", totals))


def test_prompt_mean_without_the_tokens_of_groups_says_so() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(AssertionError, match="prompt-mean needs group_tokens, but the batch has none"):
        aggregate(torch.zeros(1, 2), mask, "prompt-mean", totals_of(mask))


def test_every_term_of_the_actor_loss_is_a_mean_over_prompts() -> None:
    columns = columns_of()
    mask = columns["response_mask"]
    columns["group_tokens"] = torch.tensor([6, 6, 6, 9, 9, 9])
    totals = replace(totals_of(mask), num_prompts=2.0)
    config = ActorConfig(loss_aggregation="prompt-mean", kl_loss_coef=0.3, kl_loss_type="k2", entropy_coef=0.05)
    ratio = (columns["log_probs"] - columns["old_log_probs"]).exp()
    policy = torch.maximum(-columns["advantages"] * ratio, -columns["advantages"] * ratio.clamp(0.8, 1.2))
    square = (columns["log_probs"] - columns["ref_log_probs"]).square() / 2
    tokens = torch.where(mask, policy + 0.3 * square - 0.05 * columns["entropy"], 0.0)
    expected = (tokens[:3].sum() / 6 + tokens[3:].sum() / 9) / 2
    assert float(run(ActorLoss(config), columns, totals)[0].loss) == pytest.approx(float(expected), rel=1e-5)


def test_unknown_aggregation_says_what_exists() -> None:
    with pytest.raises(ValueError, match="'mean'; expected token-mean"):
        aggregate(
            torch.zeros(1, 1),
            torch.ones(1, 1).bool(),
            "mean",
            BatchTotals(num_tokens=1, num_sequences=1, max_response_tokens=1),
        )


# ---- whole losses: what must hold for each of them


def columns_of(rows: int = 6, width: int = 5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(11)
    mask = torch.arange(width) < torch.tensor([5, 1, 0, 3, 4, 2][:rows])[:, None]
    noise = {
        name: torch.randn(rows, width, generator=generator)
        for name in ("log_probs", "advantages", "values", "returns", "new_values")
    }
    log_probs = noise["log_probs"] - 3
    columns = {
        "response_mask": mask,
        "log_probs": log_probs,
        "entropy": noise["log_probs"].abs(),
        "old_log_probs": log_probs + 0.4 * torch.randn(rows, width, generator=generator),
        "ref_log_probs": log_probs + 0.6 * torch.randn(rows, width, generator=generator),
        "advantages": noise["advantages"],
        "values": noise["values"],
        "returns": noise["returns"],
        "new_values": noise["new_values"],
    }
    return {
        name: column if name == "response_mask" else torch.where(mask, column, 0.0) for name, column in columns.items()
    }


def whole_losses() -> dict[str, MicroBatchLoss]:
    losses: dict[str, MicroBatchLoss] = {
        f"actor-{mode}": ActorLoss(
            ActorConfig(loss_aggregation=mode, entropy_coef=0.01, kl_loss_coef=0.05, clip_ratio_dual=1.3)
        )
        for mode in MODES
    }
    losses |= {f"actor-{kind}": ActorLoss(ActorConfig(kl_loss_coef=0.3, kl_loss_type=kind)) for kind in KINDS}
    losses["actor-reinforce"] = ActorLoss(ActorConfig(policy_loss="reinforce"))
    losses |= {
        "critic": CriticLoss(CriticConfig()),
        "critic-unclipped": CriticLoss(CriticConfig(value_clip=0)),
        "sft": SftLoss(),
    }
    return losses


LOSSES = whole_losses()


def run(loss: MicroBatchLoss, columns: dict[str, Tensor], totals: BatchTotals) -> tuple[LossOutput, Tensor]:
    """Return the loss on these rows and its gradient with respect to the model's outputs, [B, T] (log-probs plus
    entropy, or values).
    """
    outputs = {
        "log_probs": columns["log_probs"].clone().requires_grad_(),
        "entropy": columns["entropy"].clone().requires_grad_(),
        "values": columns["new_values"].clone().requires_grad_(),
    }
    output = loss(outputs, columns, totals)
    torch.autograd.backward(output.loss)
    gradients = [o.grad for o in outputs.values() if o.grad is not None]
    assert gradients, "the loss is not attached to any output"
    return LossOutput(loss=output.loss.detach(), metrics=output.metrics), torch.stack(gradients).sum(0)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("cuts", [[1, 1, 1, 1, 1, 1], [2, 4], [5, 0, 1]])
def test_micro_batch_shares_add_up_to_the_whole(name: str, cuts: list[int]) -> None:
    columns = columns_of()
    totals = totals_of(columns["response_mask"])
    whole, whole_gradient = run(LOSSES[name], columns, totals)
    start, parts = 0, []
    for size in cuts:
        parts.append(run(LOSSES[name], {key: column[start : start + size] for key, column in columns.items()}, totals))
        start += size
    assert float(sum(output.loss for output, _ in parts)) == pytest.approx(float(whole.loss), rel=1e-6, abs=1e-6)
    assert torch.allclose(torch.cat([g for _, g in parts]), whole_gradient, atol=1e-6)
    for metric, value in whole.metrics.items():
        assert float(sum(output.metrics[metric] for output, _ in parts)) == pytest.approx(
            float(value), rel=1e-6, abs=1e-6
        ), metric


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_padding_width_does_not_matter(name: str) -> None:
    columns = columns_of()
    totals = totals_of(columns["response_mask"])
    wide = {key: torch.nn.functional.pad(column, (0, 3)) for key, column in columns.items()}
    narrow_output, narrow_gradient = run(LOSSES[name], columns, totals)
    wide_output, wide_gradient = run(LOSSES[name], wide, totals)
    assert float(wide_output.loss) == pytest.approx(float(narrow_output.loss), abs=1e-6)
    assert torch.allclose(wide_gradient[:, :5], narrow_gradient, atol=1e-7) and not wide_gradient[:, 5:].any()


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("garbage", [NAN, float("inf"), -1e30])
def test_what_the_padding_holds_does_not_matter(name: str, garbage: float) -> None:
    columns = columns_of()
    mask = columns["response_mask"]
    totals = totals_of(mask)
    dirty = {key: torch.where(mask, column, garbage) for key, column in columns.items() if key != "response_mask"}
    clean_output, clean_gradient = run(LOSSES[name], columns, totals)
    # All at once, then each alone: garbage less garbage may be zero.
    for replaced in (dirty, *({key: column} for key, column in dirty.items())):
        dirty_output, dirty_gradient = run(LOSSES[name], columns | replaced, totals)
        assert float(dirty_output.loss) == float(clean_output.loss)
        assert torch.equal(dirty_gradient, clean_gradient)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (3, 0), (3, 4)])
def test_nothing_valid_gives_a_zero_loss_that_can_run_backward(name: str, shape: tuple[int, int]) -> None:
    columns = {key: torch.zeros(shape, dtype=column.dtype) for key, column in columns_of().items()}
    output, result = run(LOSSES[name], columns, totals_of(columns["response_mask"]))
    assert float(output.loss.detach()) == 0.0 and not result.any()
    assert all(float(value) == 0.0 and not value.requires_grad for value in output.metrics.values())


def test_actor_loss_adds_its_terms() -> None:
    columns = columns_of()
    totals = totals_of(columns["response_mask"])
    config = ActorConfig(entropy_coef=0.5, kl_loss_coef=2.0)
    metrics = {name: float(value) for name, value in run(ActorLoss(config), columns, totals)[0].metrics.items()}
    policy, kl_loss, entropy = (metrics[f"actor/{name}"] for name in ("policy_loss", "kl_loss", "entropy"))
    assert metrics["actor/loss"] == pytest.approx(policy + 2.0 * kl_loss - 0.5 * entropy)


def test_entropy_is_asked_for_only_where_it_is_used() -> None:
    assert ActorLoss(ActorConfig(entropy_coef=0.1)).needs_entropy
    plain = ActorLoss(ActorConfig())
    assert not plain.needs_entropy and not CriticLoss(CriticConfig()).needs_entropy and not SftLoss().needs_entropy
    columns = columns_of()
    output = plain({"log_probs": columns["log_probs"]}, columns, totals_of(columns["response_mask"]))
    assert "actor/entropy" not in output.metrics and "actor/kl_loss" not in output.metrics


def test_kl_in_loss_without_a_reference_says_so() -> None:
    columns = columns_of()
    del columns["ref_log_probs"]
    with pytest.raises(AssertionError, match="no ref_log_probs"):
        run(ActorLoss(ActorConfig(kl_loss_coef=0.1)), columns, totals_of(columns["response_mask"]))


@pytest.mark.parametrize("use_rollout_log_probs", [False, True])
def test_without_old_log_probs_they_are_this_forwards_or_the_engines_and_the_gap_is_measured(
    use_rollout_log_probs: bool,
) -> None:
    columns = columns_of()
    mask, totals = columns["response_mask"], totals_of(columns["response_mask"])
    columns["rollout_log_probs"] = torch.where(mask, columns["old_log_probs"], NAN)
    config = ActorConfig(use_rollout_log_probs=use_rollout_log_probs)
    old = columns["rollout_log_probs"] if use_rollout_log_probs else columns["log_probs"]
    expected, expected_gradient = run(ActorLoss(config), {**columns, "old_log_probs": old}, totals)
    gap = LogProbGap()
    del columns["old_log_probs"]
    found, gradient = run(ActorLoss(config, gap=gap), columns, totals)
    assert torch.equal(found.loss, expected.loss) and torch.equal(gradient, expected_gradient)
    assert {name: float(value) for name, value in found.metrics.items()} == {
        name: float(value) for name, value in expected.metrics.items()
    }
    assert (float(found.metrics["actor/ratio_mean"]) == 1.0) is not use_rollout_log_probs
    gaps = (columns["log_probs"] - columns["rollout_log_probs"]).abs()[mask]
    report = gap.report()
    assert report == pytest.approx({"gap_sum": float(gaps.sum()), "gap_max": float(gaps.max()), "gap_count": len(gaps)})
    run(ActorLoss(config, gap=gap), columns, totals)
    assert gap.report()["gap_sum"] == 2 * report["gap_sum"], "micro-batches add up"


def test_value_loss_by_hand() -> None:
    mask = torch.ones(1, 3, dtype=torch.bool)
    # Old values 0, returns 1, clip 0.2: a value at 0.5 is judged as if at 0.2 (error 0.64), one at -0.5 or at 0.1 by
    # itself (2.25, 0.81).
    values = torch.tensor([[0.5, -0.5, 0.1]], requires_grad=True)
    columns = {"values": torch.zeros(1, 3), "returns": torch.ones(1, 3), "response_mask": mask}
    output = CriticLoss(CriticConfig(value_clip=0.2))({"values": values}, columns, totals_of(mask))
    assert float(output.loss.detach()) == pytest.approx(0.5 * (0.64 + 2.25 + 0.81) / 3)
    assert float(output.metrics["critic/value_clip_frac"]) == pytest.approx(1 / 3)
    assert float(output.metrics["critic/value_mean"]) == pytest.approx(0.1 / 3)
    torch.autograd.backward(output.loss)
    assert values.grad is not None
    assert values.grad[0].tolist() == pytest.approx([0.0, -1.5 / 3, -0.9 / 3])


def test_no_value_counts_as_held_by_a_clip_that_none_reaches() -> None:
    values, old_values, returns = torch.randn(3, 40, 50, generator=torch.Generator().manual_seed(3))
    assert (old_values + (values - old_values) != values).any(), "distances that round are what this is about"
    columns = {"values": old_values, "returns": returns, "response_mask": torch.ones(40, 50, dtype=torch.bool)}
    columns |= dict.fromkeys(("new_values", "log_probs", "entropy"), values)
    totals = totals_of(columns["response_mask"])
    (free, free_gradient), (clipped, gradient) = (
        run(CriticLoss(CriticConfig(value_clip=clip)), columns, totals) for clip in (0, 100)
    )
    assert float(clipped.metrics["critic/value_clip_frac"]) == 0.0
    assert torch.equal(clipped.loss, free.loss) and torch.equal(gradient, free_gradient)


def test_sft_loss_is_the_mean_negative_log_prob() -> None:
    log_probs = torch.tensor([[-1.0, -2.0], [-4.0, -100.0]], requires_grad=True)
    mask = torch.tensor([[True, True], [True, False]])
    output = SftLoss()({"log_probs": log_probs}, {"response_mask": mask}, totals_of(mask))
    assert float(output.loss.detach()) == pytest.approx(7 / 3) and float(output.metrics["sft/loss"]) == pytest.approx(
        7 / 3
    )


def test_explained_variance_is_one_for_perfect_values_and_zero_for_a_constant() -> None:
    returns, mask = torch.tensor([[0.0, 1.0, 4.0]]), torch.ones(1, 3, dtype=torch.bool)
    of_returns = whiten_stats(returns, mask)
    assert explained_variance(errors=whiten_stats(returns - returns, mask), returns=of_returns) == 1.0
    assert explained_variance(errors=whiten_stats(returns - 2.0, mask), returns=of_returns) == pytest.approx(0.0)
    assert explained_variance(errors=of_returns, returns=whiten_stats(torch.ones(1, 3), mask)) == 0.0
