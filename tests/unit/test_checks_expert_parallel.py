"""Rules on experts that stay on their ranks: what each refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_checks_algorithm import config
from tests.unit.test_checks_experts import model
from verl_like.checks.expert_parallel import EXPERT_PARALLEL_RULES
from verl_like.checks.gpus import Gpus
from verl_like.checks.rules import check_devices
from verl_like.config.problems import Refused

ON = {"actor__fsdp__expert_parallel": True}


def problems(**changes: object) -> list[str]:
    made = config(**changes)
    return [problem for rule in EXPERT_PARALLEL_RULES for problem in rule(made, Gpus(0))]


def mixture(folder: Path, num_experts: int = 8) -> str:
    return model(folder, num_experts=num_experts)


def test_a_model_without_experts_is_refused(tmp_path: Path) -> None:
    dense = model(tmp_path)
    assert not problems(model__path=dense)
    assert problems(model__path=dense, **ON) == [
        f"actor.fsdp.expert_parallel is true, but {dense} has no experts (num_experts, num_local_experts, "
        "n_routed_experts in its config.json). Name a mixture of experts, or set actor.fsdp.expert_parallel=false."
    ]


@pytest.mark.parametrize(
    ("changes", "begins", "ends"),
    [
        (
            {"actor__fsdp__shard_size": "1"},
            "actor.fsdp.expert_parallel divides the experts among ranks, but actor.fsdp.shard_size=1 gives",
            "Set actor.fsdp.shard_size=all, or actor.fsdp.expert_parallel=false.",
        ),
        (
            {"actor__fsdp__cpu_offload": True},
            "actor.fsdp.cpu_offload moves the parameters that FSDP gathers to the GPU, but",
            "Set one of them to false; actor.fsdp.offload_params=true works with both.",
        ),
        (
            {"actor__compile_layers": "true"},
            "actor.compile_layers compiles layers that do not communicate, but",
            "Set actor.compile_layers=false, or actor.fsdp.expert_parallel=false.",
        ),
    ],
)
def test_what_does_not_work_together_is_refused(
    tmp_path: Path, changes: dict[str, object], begins: str, ends: str
) -> None:
    path = mixture(tmp_path)
    assert not problems(model__path=path, **ON) and not problems(model__path=path, **changes)
    [problem] = problems(model__path=path, **ON, **changes)
    assert problem.startswith(begins) and problem.endswith(ends)


@pytest.mark.parametrize(("num_experts", "shard_size", "ranks"), [(6, "auto", 4), (8, "3", 3), (2, "all", 4)])
def test_experts_that_cannot_be_divided_equally_are_refused(
    tmp_path: Path, num_experts: int, shard_size: str, ranks: int
) -> None:
    path = mixture(tmp_path, num_experts)
    changes = {**ON, "model__path": path, "actor__fsdp__shard_size": shard_size, "cluster__workers_per_node": 4}
    assert problems(**changes) == [
        f"actor.fsdp.expert_parallel divides experts equally, but {path} has {num_experts} in a layer, and {ranks} "
        f"ranks share them. Set actor.fsdp.shard_size to a divisor of both the ranks and {num_experts}, or "
        "actor.fsdp.expert_parallel=false."
    ]
    assert not problems(**{**changes, "actor__fsdp__shard_size": "2"})


def test_the_workers_of_a_joined_cluster_are_counted_too(tmp_path: Path) -> None:
    made = config(model__path=mixture(tmp_path, 6), **ON)
    check_devices(made, world_size=3, device="cuda", cores=8)
    with pytest.raises(Refused, match=r"has 6 in a layer, and 4 ranks share them"):
        check_devices(made, world_size=4, device="cuda", cores=8)


@pytest.mark.parametrize(
    ("changes", "ranks"),
    [
        ({"critic__fsdp__expert_parallel": True}, 4),
        ({"ref__fsdp__expert_parallel": True, "cluster__placement": {"trainer": 1, "ref": 3}}, 3),
        ({"reward__model__fsdp__expert_parallel": True, "reward__model__placement": "own"}, 5),
    ],
)
def test_each_model_has_the_ranks_of_its_pool(tmp_path: Path, changes: dict[str, object], ranks: int) -> None:
    path = mixture(tmp_path, 2)
    [problem] = problems(
        model__path=path, reward__model__path=path, reward__model__num_workers=5, cluster__workers_per_node=4, **changes
    )
    assert f"and {ranks} ranks share them" in problem
