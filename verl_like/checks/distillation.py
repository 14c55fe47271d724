"""Rules on distillation. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.algorithms.advantages import estimator
from verl_like.algorithms.policy_losses import policy_loss
from verl_like.checks.pools import REF
from verl_like.config.schema import AlgorithmConfig, Config, DataConfig


def distillation_has_a_teacher(config: Config) -> Iterator[str]:
    algorithm = config.algorithm
    if not algorithm.distillation:
        return
    if algorithm.distill_teacher == "ref" and not (config.ref.path or config.ref.teachers):
        yield (
            f"algorithm.distill_coef is {algorithm.distill_coef:g}, but ref.path and ref.teachers are empty, so there "
            "is no teacher. Set ref.path to the teacher's folder or hub name, algorithm.distill_teacher=base, or "
            "algorithm.distill_coef=0."
        )
    wanted = estimator(algorithm.adv_estimator).needs | policy_loss(config.actor.policy_loss).needs
    for name, is_on, remedy in (
        ("actor.kl_loss_coef", config.actor.kl_loss_coef > 0, "actor.kl_loss_coef=0"),
        ("algorithm.kl_coef", algorithm.kl_coef > 0, "algorithm.kl_coef=0"),
        (
            f"actor.policy_loss={config.actor.policy_loss}",
            "ref_log_probs" in wanted,
            "another actor.policy_loss or algorithm.adv_estimator",
        ),
    ):
        if is_on:
            yield (
                f"{name} compares the policy with the reference, but with algorithm.distill_coef="
                f"{algorithm.distill_coef:g} the reference is the teacher. Set {remedy}, or algorithm.distill_coef=0."
            )


def distillation_options_are_read(config: Config) -> Iterator[str]:
    algorithm, defaults = config.algorithm, AlgorithmConfig()
    if not algorithm.distillation and algorithm.distill_loss != defaults.distill_loss:
        yield (
            f"algorithm.distill_loss is {algorithm.distill_loss}, but algorithm.distill_coef is 0, so nothing is "
            "distilled. Set algorithm.distill_coef=1, or leave algorithm.distill_loss at its default."
        )
    if algorithm.distillation != "jsd" and algorithm.distill_beta != defaults.distill_beta:
        yield (
            f"algorithm.distill_beta is {algorithm.distill_beta:g}, but only algorithm.distill_loss=jsd with "
            "algorithm.distill_coef above 0 reads it. Set these, or leave algorithm.distill_beta at its default."
        )


def teachers_are_read(config: Config) -> Iterator[str]:
    ref, key = config.ref, config.data.teacher_key
    if not ref.teachers:
        if key != DataConfig().teacher_key:
            yield (
                f"data.teacher_key is {key}, but ref.teachers is empty, so nothing reads it. Set "
                "ref.teachers={name: model, ...}, or leave data.teacher_key at its default."
            )
        return
    found = f"ref.teachers names {', '.join(ref.teachers)}"
    if not config.algorithm.distillation:
        yield (
            f"{found}, but algorithm.distill_coef is 0, so nothing is distilled. Set algorithm.distill_coef=1, or "
            "leave ref.teachers empty."
        )
    if ref.path:
        yield (
            f"{found}, but ref.path is {ref.path}: expected either several teachers or one. Leave ref.path empty, or "
            "ref.teachers."
        )


def teacher_is_where_the_policy_learns(config: Config) -> Iterator[str]:
    if config.algorithm.distillation != "jsd" or config.ref_is_actor:
        return
    if REF in config.cluster.placement:
        yield (
            "algorithm.distill_loss is jsd, which runs the teacher in the policy's updates, but cluster.placement "
            f"gives it the workers of the pool {REF}. Leave this pool out, or set algorithm.distill_loss=pg."
        )
    actor, ref = config.actor.sequence_parallel_size, config.ref.sequence_parallel_size
    if actor != ref and not config.algorithm.self_distillation:  # which allows no sequence parallelism
        yield (
            f"ref.sequence_parallel_size is {ref} and actor.sequence_parallel_size is {actor}, but with "
            "algorithm.distill_loss=jsd the teacher sees the policy's own pieces of sequences. Set "
            f"ref.sequence_parallel_size={actor}."
        )


def ranks_include_the_teachers_term(config: Config) -> Iterator[str]:
    name = config.actor.policy_loss
    if config.algorithm.distillation == "pg" and "covariance_rank" in policy_loss(name).needs:
        yield (
            f"actor.policy_loss={name} ranks tokens by their advantages, to which algorithm.distill_loss=pg adds the "
            "teacher's term only later. Set algorithm.distill_loss=jsd, or another actor.policy_loss."
        )


def policy_learns_from_something(config: Config) -> Iterator[str]:
    algorithm = config.algorithm
    if algorithm.adv_estimator != "none":
        return
    if not algorithm.distillation:
        yield (
            "algorithm.adv_estimator is none, which gives no response an advantage, and algorithm.distill_coef is 0, "
            "so the policy has nothing to learn from. Set algorithm.distill_coef=1, or algorithm.adv_estimator=grpo."
        )
    has_policy_loss = algorithm.distillation == "pg"
    for name, is_on, default in (
        ("algorithm.filter_groups", algorithm.filter_groups, "false"),
        ("algorithm.pf_ppo", algorithm.pf_ppo != "off", "off"),
        ("algorithm.top_entropy_quantile", algorithm.top_entropy_quantile < 1 and not has_policy_loss, "1"),
        ("actor.off_policy_mask_threshold", config.actor.off_policy_mask_threshold > 0 and not has_policy_loss, "0"),
    ):
        if is_on:
            yield (
                f"{name} is set, but it selects what is learnt by rewards, and with algorithm.adv_estimator=none the "
                f"policy learns from its teacher alone. Set {name}={default}."
            )


DISTILLATION_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    distillation_has_a_teacher,
    distillation_options_are_read,
    teachers_are_read,
    teacher_is_where_the_policy_learns,
    ranks_include_the_teachers_term,
    policy_learns_from_something,
)
