"""Rules on the terms of the actor's loss: what each refuses, and that its remedy works."""

from __future__ import annotations

import inspect

import pytest

from tests.unit.test_checks_algorithm import config
from verl_like.checks import loss as loss_checks
from verl_like.checks.loss import LOSS_RULES


def problems(**changes: object) -> list[str]:
    made = config(**changes)
    return [problem for rule in LOSS_RULES for problem in rule(made)]


def test_every_rule_of_the_module_is_in_the_list() -> None:
    own = vars(loss_checks).values()
    rules = [each for each in own if inspect.isfunction(each) and each.__module__ == loss_checks.__name__]
    assert set(rules) == set(LOSS_RULES)


def test_the_defaults_pass() -> None:
    assert not problems()


def test_a_ratio_without_a_kl_in_the_loss_is_refused() -> None:
    assert problems(actor__weigh_kl_by_ratio=True) == [
        "actor.weigh_kl_by_ratio is true, but actor.kl_loss_coef is 0, so the loss has no KL. Set "
        "actor.kl_loss_coef=0.001, or actor.weigh_kl_by_ratio=false."
    ]
    assert not problems(actor__weigh_kl_by_ratio=True, actor__kl_loss_coef=0.001)


@pytest.mark.parametrize("kind", ["k2", "abs", "k1+", "k3+"])
def test_a_ratio_with_a_biased_estimator_is_refused(kind: str) -> None:
    changes = {"actor__weigh_kl_by_ratio": True, "actor__kl_loss_coef": 0.1, "actor__kl_loss_type": kind}
    assert problems(**changes) == [
        f"actor.weigh_kl_by_ratio is true, but with actor.kl_loss_type={kind} the product does not have the gradient "
        "of the KL; expected k1 or k3. Set actor.kl_loss_type=k3, or actor.weigh_kl_by_ratio=false."
    ]
    assert not problems(**{**changes, "actor__kl_loss_type": "k3"})


@pytest.mark.parametrize("option", ["off_policy_mask_threshold", "rollout_kl_coef"])
def test_a_term_of_the_engines_log_probs_is_refused_with_top_p_and_top_k(option: str) -> None:
    term = {f"actor__{option}": 0.5}
    assert problems(rollout__top_p=0.9, **term) == [
        f"rollout.top_p is 0.9 and rollout.top_k is -1, but actor.{option} compares the policy's log-probs with the "
        f"engine's, which are then over the kept candidates only. Set rollout.keep_sampling_mask=true, or "
        f"rollout.top_p=1 rollout.top_k=-1, or actor.{option}=0."
    ]
    assert not problems(rollout__top_p=0.9, rollout__keep_sampling_mask=True, **term)
    assert problems(rollout__top_k=50, **term)
    assert not problems(**term)
    assert not problems(rollout__top_p=0.9)


# --- losses of pairs


def test_a_share_of_wrong_pairs_that_no_loss_reads_is_refused() -> None:
    assert problems(dpo__label_smoothing=0.1) == [
        "dpo.label_smoothing is 0.1, but no loss of dpo.losses reads it, only cdpo, robust, exo_pair. "
        "Use one of these, or set dpo.label_smoothing=0."
    ]
    assert not problems(dpo__label_smoothing=0.1, dpo__losses={"sft": 1.0, "robust": 0.5})


def test_exo_pair_without_a_share_of_wrong_pairs_is_refused() -> None:
    assert problems(dpo__losses={"exo_pair": 1.0}) == [
        "dpo.losses has exo_pair, which is not defined for dpo.label_smoothing=0. "
        "Set dpo.label_smoothing=0.001, or use another loss."
    ]
    assert not problems(dpo__losses={"exo_pair": 1.0}, dpo__label_smoothing=0.001)


def test_a_divergence_that_a_loss_does_not_read_is_refused() -> None:
    readers = "sigmoid, cdpo, robust, hinge, ipo, sigmoid_norm, exo_pair"
    for losses, found in (({"sigmoid": 1, "apo_zero": 1}, "apo_zero"), ({"sft": 1}, "sft"), ({"kto": 1}, "kto")):
        assert problems(dpo__losses=losses, dpo__f_divergence="forward_kl") == [
            f"dpo.f_divergence is forward_kl, but dpo.losses has {found}; expected one or more of {readers}, "
            "optionally with sft. Change dpo.losses, or set dpo.f_divergence=reverse_kl."
        ]
    assert not problems(dpo__losses={"cdpo": 1.0, "sft": 1.0}, dpo__f_divergence="js_divergence")


def test_an_alpha_that_the_divergence_lacks_is_refused() -> None:
    assert problems(dpo__f_alpha=0.3) == [
        "dpo.f_alpha is 0.3, but dpo.f_divergence=reverse_kl has no alpha. Set dpo.f_divergence=alpha_divergence, or "
        "leave out dpo.f_alpha."
    ]
    assert not problems(dpo__f_alpha=0.3, dpo__f_divergence="alpha_divergence")


# --- a reference that is reset


@pytest.mark.parametrize(
    ("changes", "found", "remedy"),
    [
        ({"actor__kl_loss_coef": 0.0}, "no KL term has a coefficient above 0", "Set actor.kl_loss_coef"),
        ({"model__lora__rank": 8}, "model.lora.rank is 8", "Set model.lora.rank=0"),
        ({"ref__path": "other"}, "ref.path is other, another model than the actor's", "Leave ref.path empty"),
        (
            {"ref__teachers": {"math": "a", "code": "b"}},
            "ref.teachers has a, b, other models than the actor's",
            "Leave ref.teachers empty",
        ),
        ({"cluster__placement": {"trainer": 1, "ref": 1}}, "workers of its pool", "Leave the pool ref out"),
    ],
)
def test_a_reference_that_cannot_take_the_actors_weights_is_refused(
    changes: dict[str, object], found: str, remedy: str
) -> None:
    base = {"actor__kl_loss_coef": 0.01, "ref__reset_every": 5}
    assert not problems(**base)
    [text] = problems(**{**base, **changes})
    assert text.startswith("ref.reset_every is 5, but ") and found in text
    assert remedy in text and text.endswith("or ref.reset_every=0.")
    assert not problems(**{**base, **changes, "ref__reset_every": 0})


# --- losses of single responses


def test_losses_of_pairs_and_of_single_responses_are_refused_together() -> None:
    assert problems(dpo__losses={"sigmoid": 1.0, "kto": 0.5}) == [
        "dpo.losses has sigmoid, which compare the responses of a pair, and kto, which rate single responses; expected "
        "losses of one kind. Remove one kind from dpo.losses."
    ]
    assert not problems(dpo__losses={"apo_zero_unpaired": 1.0, "kto": 0.5})


@pytest.mark.parametrize("name", ["desirable", "undesirable"])
def test_a_weight_of_a_label_that_no_loss_reads_is_refused(name: str) -> None:
    weight: dict[str, object] = {f"dpo__{name}_weight": 1.5}
    assert problems(**weight) == [
        f"dpo.{name}_weight is 1.5, but no loss of dpo.losses reads it, only kto, apo_zero_unpaired. Use one of these, "
        f"or set dpo.{name}_weight=1."
    ]
    assert not problems(dpo__losses={"kto": 1.0}, **weight)


def test_kto_with_batches_of_one_row_is_refused() -> None:
    assert problems(dpo__losses={"kto": 1.0}, data__train_batch_size=1) == [
        "data.train_batch_size is 1, but dpo.losses has kto, which estimates a KL from prompts with the responses of "
        "other rows of the batch and needs at least 2. Set data.train_batch_size=2 or more, or use another loss."
    ]
    assert not problems(dpo__losses={"apo_zero_unpaired": 1.0}, data__train_batch_size=1)
