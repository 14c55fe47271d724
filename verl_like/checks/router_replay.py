"""Rules on rollout.router_replay. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.checks.gpus import Gpus
from verl_like.checks.models import config_of
from verl_like.config.schema import Config

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # names of the number of experts
_OFF = "or set rollout.router_replay=false."


def replayed_model_has_experts(config: Config, gpus: Gpus) -> Iterator[str]:
    if not config.rollout.router_replay:
        return
    model = config_of(config.model.path, config.model.override_config) if config.model.path else {}
    if model and not any(model.get(name) for name in EXPERTS):
        yield (
            f"rollout.router_replay is true, but {config.model.path} has no experts ({', '.join(EXPERTS)} in its "
            f"config.json). Name a mixture of experts, {_OFF}"
        )


def replayed_rows_are_of_single_turns(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.rollout.router_replay and config.environment.is_used:
        yield (
            f"rollout.router_replay is true, but episodes with an environment (environment.path="
            f"{config.environment.path!r}, environment.tools={config.environment.tools!r}) do not record the experts "
            f"of their turns. Leave both empty, {_OFF}"
        )


ROUTER_REPLAY_RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (
    replayed_model_has_experts,
    replayed_rows_are_of_single_turns,
)
