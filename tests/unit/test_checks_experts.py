"""Rules on the options of mixtures of experts: what each refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_checks_algorithm import config
from verl_like.checks.experts import EXPERT_RULES, EXPERTS
from verl_like.checks.gpus import Gpus

OFF = "or set rollout.router_replay=false."


def problems(**changes: object) -> list[str]:
    made = config(**changes)
    return [problem for rule in EXPERT_RULES for problem in rule(made, Gpus(0))]


def model(folder: Path, **fields: object) -> str:
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", **fields}))
    return str(folder)


def test_a_model_without_experts_is_refused(tmp_path: Path) -> None:
    dense = model(tmp_path)
    assert not problems(model__path=dense)
    assert problems(model__path=dense, rollout__router_replay=True) == [
        f"rollout.router_replay is true, but {dense} has no experts (num_experts, num_local_experts, "
        f"n_routed_experts in its config.json). Name a mixture of experts, {OFF}"
    ]


@pytest.mark.parametrize(
    ("changes", "begins", "ends"),
    [
        ({"actor__freeze_router": True}, "actor.freeze_router is true, but", "or set actor.freeze_router=false."),
        (
            {"actor__router_aux_loss_coef": 0.001},
            "actor.router_aux_loss_coef is 0.001, but",
            "set actor.router_aux_loss_coef=0.",
        ),
        ({"actor__router_bias_rate": 0.001}, "actor.router_bias_rate is 0.001, but", "set actor.router_bias_rate=0."),
    ],
)
def test_no_option_of_experts_is_without_effect(
    tmp_path: Path, changes: dict[str, object], begins: str, ends: str
) -> None:
    [problem] = problems(model__path=model(tmp_path), **changes)
    assert problem.startswith(begins) and problem.endswith(ends)


@pytest.mark.parametrize("field", EXPERTS)
def test_a_mixture_passes(tmp_path: Path, field: str) -> None:
    assert not problems(model__path=model(tmp_path, **{field: 8}), rollout__router_replay=True)
    assert not problems(model__path="owner/unknown", rollout__router_replay=True)


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("actor__freeze_router", True, "Set one of them to its default."),
        ("actor__sequence_parallel_size", 2, "or use actor.router_bias_rate."),
    ],
)
def test_a_loss_that_balances_nothing_or_parts_of_sequences_is_refused(
    tmp_path: Path, option: str, value: object, remedy: str
) -> None:
    mixture = model(tmp_path, num_experts=8)
    [problem] = problems(model__path=mixture, actor__router_aux_loss_coef=0.01, **{option: value})
    assert problem.startswith("actor.router_aux_loss_coef is 0.01, but") and problem.endswith(remedy)


def test_an_environment_is_refused(tmp_path: Path) -> None:
    mixture = model(tmp_path, num_experts=8)
    assert problems(model__path=mixture, rollout__router_replay=True, environment__tools="tools.py") == [
        "rollout.router_replay is true, but episodes with an environment (environment.path='', "
        f"environment.tools='tools.py') do not record the experts of their turns. Leave both empty, {OFF}"
    ]


def test_frozen_routers_keep_their_biases(tmp_path: Path) -> None:
    path = model(tmp_path, n_routed_experts=8)
    assert not problems(model__path=path, actor__router_bias_rate=0.01)
    assert problems(model__path=path, actor__router_bias_rate=0.01, actor__freeze_router=True) == [
        "actor.router_bias_rate is 0.01, but actor.freeze_router=true keeps the routers as they are. Set one of them "
        "to its default."
    ]


@pytest.mark.parametrize(
    ("option", "value"),
    [("rollout__router_replay", True), ("actor__router_bias_rate", 0.01), ("actor__router_aux_loss_coef", 0.01)],
)
def test_what_reads_the_experts_of_tokens_is_not_compiled(tmp_path: Path, option: str, value: object) -> None:
    path = model(tmp_path, n_routed_experts=8)
    [problem] = problems(model__path=path, actor__compile_layers="true", **{option: value})
    name = option.replace("__", ".")
    assert f"as {name} requires. Set actor.compile_layers=false, or leave {name} out." in problem
    assert not problems(model__path=path, actor__compile_layers="auto", **{option: value})
    assert not problems(model__path=path, actor__compile_layers="true", actor__freeze_router=True)


def test_a_token_does_not_choose_more_experts_than_there_are(tmp_path: Path) -> None:
    path = model(tmp_path, num_experts=4, num_experts_per_tok=4)
    assert not problems(model__path=path)
    assert problems(model__path=path, model__override_config={"num_experts_per_tok": 9}) == [
        f"{path} chooses 9 experts for a token (num_experts_per_tok in its config.json or in model.override_config), "
        "but a layer has 4. Lower num_experts_per_tok."
    ]
    assert not problems(model__path=model(tmp_path, num_experts_per_tok=2)), "a dense model may have the field"
