"""Rules on models that read pictures. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.algorithms.roles import needs
from verl_like.checks.families import PICTURE_FAMILIES, reads_pictures
from verl_like.checks.gpus import Gpus
from verl_like.checks.models import own_config
from verl_like.config.schema import Config


def freezing_vision_needs_a_model_of_pictures(config: Config, gpus: Gpus) -> Iterator[str]:
    known = own_config(config.model.path) if config.model.freeze_vision and config.model.path else {}
    if known and not reads_pictures(known):
        yield (
            f"model.freeze_vision is true, but {config.model.path} reads text only (model_type in its config.json is "
            f"{known.get('model_type')}). Name a model of the types {', '.join(PICTURE_FAMILIES)}, or set "
            "model.freeze_vision=false."
        )


def pictures_are_read_by_what_supports_them(config: Config, gpus: Gpus) -> Iterator[str]:
    path = config.model.path
    if not path or not reads_pictures(own_config(path)):
        return
    what = f"{path} is a vision-language model, "
    if config.rollout.backend == "hf":
        yield f"{what}but rollout.backend=hf generates from text only. Set rollout.backend=vllm."
    if needs(config).critic:
        yield (
            f"{what}but a critic reads text only. Set an algorithm without one, e.g. algorithm=grpo "
            f"(algorithm.adv_estimator is {config.algorithm.adv_estimator})."
        )
    if max(config.actor.sequence_parallel_size, config.ref.sequence_parallel_size) > 1:
        yield (
            f"{what}but ranks that share a sequence cannot share its pictures. Set actor.sequence_parallel_size=1 and "
            "ref.sequence_parallel_size=1."
        )
    if config.algorithm.self_distillation:
        yield f"{what}but a teacher with a privileged context reads text only. Set algorithm.distill_teacher=ref."
    if config.model.lora.rank and config.rollout.lora == "adapter":
        yield f"{what}but rollout.lora=adapter is for text models. Set rollout.lora=merged."
    if config.actor.compile_layers == "true":
        yield f"{what}whose layers are not compiled. Set actor.compile_layers=false."
    if config.ref.path or config.ref.teachers:
        yield f"{what}but its reference must be the model itself. Leave ref.path and ref.teachers empty."


PICTURE_RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (
    freezing_vision_needs_a_model_of_pictures,
    pictures_are_read_by_what_supports_them,
)
