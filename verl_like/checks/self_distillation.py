"""Rules on a teacher that is a version of the policy. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.checks.pools import REF
from verl_like.config.schema import AlgorithmConfig, Config, DataConfig

OF_TEACHERS = ("privileged_context_key", "teacher_prompt", "max_privileged_context_length")  # of the section data


def teacher_is_a_version_of_the_policy(config: Config) -> Iterator[str]:
    teacher, ref = config.algorithm.self_distillation, config.ref
    if not teacher:
        return
    for name, found in (("ref.path", ref.path), ("ref.teachers", ", ".join(ref.teachers.values()))):
        if found:
            yield (
                f"algorithm.distill_teacher is {teacher}, a version of the policy, but {name} names other models: "
                f"{found}. Leave {name} empty, or set algorithm.distill_teacher=ref."
            )
    if ref.reset_every:
        yield (
            f"algorithm.distill_teacher is {teacher}, but ref.reset_every is {ref.reset_every}, which would replace "
            "the teacher by the policy. Set ref.reset_every=0. A teacher that follows the policy is "
            "algorithm.distill_teacher=ema."
        )
    if config.environment.is_used:
        yield (
            f"algorithm.distill_teacher is {teacher}, whose prompt is the row's prompt with its context, but the rows "
            "of an episode with an environment have other prompts. Leave environment.path and environment.tools empty, "
            "or set algorithm.distill_teacher=ref."
        )


def average_is_of_all_weights(config: Config) -> Iterator[str]:
    if config.algorithm.self_distillation != "ema":
        return
    if config.model.lora.rank:
        yield (
            f"algorithm.distill_teacher is ema, but model.lora.rank is {config.model.lora.rank}: the teacher has the "
            "weights without adapters and cannot follow the policy. Set model.lora.rank=0, or "
            "algorithm.distill_teacher=base or self."
        )
    if REF in config.cluster.placement:
        yield (
            "algorithm.distill_teacher is ema, but cluster.placement gives the teacher workers of its pool, which do "
            f"not hold the policy's weights. Leave the pool {REF} out, or set algorithm.distill_teacher=base."
        )


def divergence_is_of_whole_sequences(config: Config) -> Iterator[str]:
    algorithm, size = config.algorithm, config.actor.sequence_parallel_size
    if algorithm.distillation == "jsd" and algorithm.self_distillation and size > 1:
        yield (
            f"algorithm.distill_teacher is {algorithm.distill_teacher} and algorithm.distill_loss is jsd, but "
            f"actor.sequence_parallel_size is {size}: the teacher's sequences are longer, so their pieces would hold "
            "other tokens. Set actor.sequence_parallel_size=1, or algorithm.distill_loss=pg."
        )


def options_of_teachers_are_read(config: Config) -> Iterator[str]:
    algorithm, default = config.algorithm, AlgorithmConfig()
    if algorithm.distill_teacher != default.distill_teacher and not algorithm.distillation:
        yield (
            f"algorithm.distill_teacher is {algorithm.distill_teacher}, but algorithm.distill_coef is 0, so nothing is "
            "distilled. Set algorithm.distill_coef=1, or leave algorithm.distill_teacher at its default."
        )
        return
    if algorithm.distill_ema != default.distill_ema and algorithm.distill_teacher != "ema":
        yield (
            f"algorithm.distill_ema is {algorithm.distill_ema:g}, but algorithm.distill_teacher is "
            f"{algorithm.distill_teacher}, which is no average. Set algorithm.distill_teacher=ema, or leave "
            "algorithm.distill_ema at its default."
        )
    changed = [name for name in OF_TEACHERS if vars(config.data)[name] != vars(DataConfig())[name]]
    if changed and not algorithm.self_distillation:
        names = ", ".join(f"data.{name}" for name in changed)
        yield (
            f"{names} {'is' if len(changed) == 1 else 'are'} set, but no teacher reads a privileged context. Set "
            "algorithm.distill_coef=1 and algorithm.distill_teacher=base, self or ema, or leave "
            f"{names} at {'its default' if len(changed) == 1 else 'their defaults'}."
        )


SELF_DISTILLATION_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    teacher_is_a_version_of_the_policy,
    average_is_of_all_weights,
    divergence_is_of_whole_sequences,
    options_of_teachers_are_read,
)
