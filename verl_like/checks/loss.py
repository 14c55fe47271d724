"""Rules on the terms of the actor's loss and on losses of pairs. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.algorithms.roles import needs
from verl_like.checks.pools import REF
from verl_like.config.schema import Config, DpoConfig
from verl_like.config.schema.preference import PAIR_LOSSES, READ_DIVERGENCE, READ_SMOOTHING, UNPAIRED_LOSSES

UNBIASED = ("k1", "k3")  # estimators whose mean over samples of the policy is the KL


def engine_log_probs_are_over_the_vocabulary(config: Config) -> Iterator[str]:
    rollout = config.rollout
    if not rollout.cuts_candidates or rollout.keep_sampling_mask:
        return
    for name, is_on in (
        ("off_policy_mask_threshold", config.actor.off_policy_mask_threshold > 0),
        ("rollout_kl_coef", config.actor.rollout_kl_coef > 0),
    ):
        if is_on:
            yield (
                f"rollout.top_p is {rollout.top_p:g} and rollout.top_k is {rollout.top_k}, but actor.{name} compares "
                "the policy's log-probs with the engine's, which are then over the kept candidates only. Set "
                f"rollout.keep_sampling_mask=true, or rollout.top_p=1 rollout.top_k=-1, or actor.{name}=0."
            )


def ratio_weighs_an_unbiased_kl(config: Config) -> Iterator[str]:
    actor = config.actor
    if not actor.weigh_kl_by_ratio:
        return
    if actor.kl_loss_coef == 0:
        yield (
            "actor.weigh_kl_by_ratio is true, but actor.kl_loss_coef is 0, so the loss has no KL. Set "
            "actor.kl_loss_coef=0.001, or actor.weigh_kl_by_ratio=false."
        )
    if actor.kl_loss_type not in UNBIASED:
        yield (
            f"actor.weigh_kl_by_ratio is true, but with actor.kl_loss_type={actor.kl_loss_type} the product does not "
            f"have the gradient of the KL; expected {' or '.join(UNBIASED)}. Set actor.kl_loss_type=k3, or "
            "actor.weigh_kl_by_ratio=false."
        )


def reset_reference_is_a_copy_of_the_actor(config: Config) -> Iterator[str]:
    every = config.ref.reset_every
    if not every:
        return
    keep = "or ref.reset_every=0."
    if not needs(config).ref:
        yield (
            f"ref.reset_every is {every}, but no KL term has a coefficient above 0, so no reference exists. Set "
            f"actor.kl_loss_coef or algorithm.kl_coef, {keep}"
        )
    if config.model.lora.rank:
        yield (
            f"ref.reset_every is {every}, but model.lora.rank is {config.model.lora.rank}: the reference has the "
            f"weights without adapters and cannot take the actor's. Set model.lora.rank=0, {keep}"
        )
    others = (
        ("ref.path", f"is {config.ref.path}, another model", bool(config.ref.path)),
        ("ref.teachers", f"has {', '.join(config.ref.teachers.values())}, other models", bool(config.ref.teachers)),
    )
    for name, found, is_set in others:
        if is_set:
            yield f"ref.reset_every is {every}, but {name} {found} than the actor's. Leave {name} empty, {keep}"
    if REF in config.cluster.placement:
        yield (
            f"ref.reset_every is {every}, but cluster.placement gives the reference workers of its pool, which do not "
            f"hold the actor's weights. Leave the pool {REF} out, {keep}"
        )


def label_smoothing_is_read(config: Config) -> Iterator[str]:
    dpo = config.dpo
    if "exo_pair" in dpo.weights and not dpo.label_smoothing:
        yield (
            "dpo.losses has exo_pair, which is not defined for dpo.label_smoothing=0. Set dpo.label_smoothing=0.001, "
            "or use another loss."
        )
    if dpo.label_smoothing and not dpo.weights.keys() & set(READ_SMOOTHING):
        yield (
            f"dpo.label_smoothing is {dpo.label_smoothing:g}, but no loss of dpo.losses reads it, only "
            f"{', '.join(READ_SMOOTHING)}. Use one of these, or set dpo.label_smoothing=0."
        )


def losses_read_the_divergence(config: Config) -> Iterator[str]:
    dpo = config.dpo
    if dpo.f_alpha != DpoConfig().f_alpha and dpo.f_divergence != "alpha_divergence":
        yield (
            f"dpo.f_alpha is {dpo.f_alpha:g}, but dpo.f_divergence={dpo.f_divergence} has no alpha. Set "
            "dpo.f_divergence=alpha_divergence, or leave out dpo.f_alpha."
        )
    if dpo.f_divergence == "reverse_kl":
        return
    readers = dpo.weights.keys() & set(READ_DIVERGENCE)
    others = [name for name in dpo.weights if name not in (*READ_DIVERGENCE, "sft")]
    if others or not readers:
        yield (
            f"dpo.f_divergence is {dpo.f_divergence}, but dpo.losses has {', '.join(others or dpo.weights)}; expected "
            f"one or more of {', '.join(READ_DIVERGENCE)}, optionally with sft. Change dpo.losses, or set "
            "dpo.f_divergence=reverse_kl."
        )


def preference_losses_are_of_one_kind(config: Config) -> Iterator[str]:
    dpo = config.dpo
    paired, unpaired = ([name for name in dpo.weights if name in kind] for kind in (PAIR_LOSSES, UNPAIRED_LOSSES))
    if paired and unpaired:
        yield (
            f"dpo.losses has {', '.join(paired)}, which compare the responses of a pair, and {', '.join(unpaired)}, "
            "which rate single responses; expected losses of one kind. Remove one kind from dpo.losses."
        )
    for name, weight in (("desirable", dpo.desirable_weight), ("undesirable", dpo.undesirable_weight)):
        if weight != 1 and not unpaired:
            yield (
                f"dpo.{name}_weight is {weight:g}, but no loss of dpo.losses reads it, only "
                f"{', '.join(UNPAIRED_LOSSES)}. Use one of these, or set dpo.{name}_weight=1."
            )
    if dpo.reads_kl and config.data.train_batch_size == 1:
        yield (
            "data.train_batch_size is 1, but dpo.losses has kto, which estimates a KL from prompts with the responses "
            "of other rows of the batch and needs at least 2. Set data.train_batch_size=2 or more, or use another loss."
        )


LOSS_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    engine_log_probs_are_over_the_vocabulary,
    ratio_weighs_an_unbiased_kl,
    reset_reference_is_a_copy_of_the_actor,
    label_smoothing_is_read,
    losses_read_the_divergence,
    preference_losses_are_of_one_kind,
)
