"""Rules on the options of mixtures of experts. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.checks.gpus import Gpus
from verl_like.checks.models import config_of
from verl_like.config.options import value_of
from verl_like.config.schema import Config

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # names of the number of experts
_TOP_K = "num_experts_per_tok"
_RECORDED = ("rollout.router_replay", "actor.router_bias_rate", "actor.router_aux_loss_coef")
_OFF = "or set rollout.router_replay=false."


def num_experts(config: Config, path: str) -> int:
    """Return the number of experts of a layer; 0 for none, and for a model that is unknown before it loads."""
    model = config_of(path, config.model.override_config) if path else {}
    return next((int(model[name]) for name in EXPERTS if model.get(name)), 0)


def model_has_experts(config: Config, gpus: Gpus) -> Iterator[str]:
    off = {
        "rollout.router_replay": "false",
        "actor.freeze_router": "false",
        "actor.router_bias_rate": "0",
        "actor.router_aux_loss_coef": "0",
    }
    used = [option for option in off if value_of(config, option)]
    model = config_of(config.model.path, config.model.override_config) if used and config.model.path else {}
    if not model or any(model.get(name) for name in EXPERTS):
        return
    for option in used:
        yield (
            f"{option} is {str(value_of(config, option)).lower()}, but {config.model.path} has no experts "
            f"({', '.join(EXPERTS)} in its config.json). Name a mixture of experts, or set {option}={off[option]}."
        )


def tokens_choose_among_the_experts(config: Config, gpus: Gpus) -> Iterator[str]:
    model = config_of(config.model.path, config.model.override_config) if config.model.path else {}
    chosen, number = model.get(_TOP_K), num_experts(config, config.model.path)
    if isinstance(chosen, int) and chosen > number > 0:
        yield (
            f"{config.model.path} chooses {chosen} experts for a token ({_TOP_K} in its config.json or in "
            f"model.override_config), but a layer has {number}. Lower {_TOP_K}."
        )


def replayed_rows_are_of_single_turns(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.rollout.router_replay and config.environment.is_used:
        yield (
            f"rollout.router_replay is true, but episodes with an environment (environment.path="
            f"{config.environment.path!r}, environment.tools={config.environment.tools!r}) do not record the experts "
            f"of their turns. Leave both empty, {_OFF}"
        )


def biases_of_frozen_routers_stay(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.actor.router_bias_rate and config.actor.freeze_router:
        yield (
            f"actor.router_bias_rate is {config.actor.router_bias_rate:g}, but actor.freeze_router=true keeps the "
            "routers as they are. Set one of them to its default."
        )


def recorded_routers_are_not_compiled(config: Config, gpus: Gpus) -> Iterator[str]:
    used = [option for option in _RECORDED if value_of(config, option)]
    if used and config.actor.compile_layers == "true":
        yield (
            f"actor.compile_layers compiles layers, which then do not record the experts of a token, as "
            f"{' and '.join(used)} requires. Set actor.compile_layers=false, or leave {' and '.join(used)} out."
        )


def balance_moves_routers_of_whole_sequences(config: Config, gpus: Gpus) -> Iterator[str]:
    actor = config.actor
    if not actor.router_aux_loss_coef:
        return
    found = f"actor.router_aux_loss_coef is {actor.router_aux_loss_coef:g}, but"
    if actor.freeze_router:
        yield f"{found} actor.freeze_router=true keeps the routers as they are. Set one of them to its default."
    if actor.sequence_parallel_size > 1:
        yield (
            f"{found} ranks that share a sequence see parts of it (actor.sequence_parallel_size="
            f"{actor.sequence_parallel_size}). Set actor.sequence_parallel_size=1, or use actor.router_bias_rate."
        )


EXPERT_RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (
    model_has_experts,
    tokens_choose_among_the_experts,
    replayed_rows_are_of_single_turns,
    biases_of_frozen_routers_stay,
    recorded_routers_are_not_compiled,
    balance_moves_routers_of_whole_sequences,
)
