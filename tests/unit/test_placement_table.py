"""The placement table says where roles run, and nothing else derives it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verl_like.backends.base import Sampling
from verl_like.config.schema import RolloutConfig
from verl_like.controller.remote_batch import Facts
from verl_like.training.placement_table import HYBRID, PlacementTable, colocated, table_of
from verl_like.workers.groups import RolloutGroup


def test_colocated_roles_are_all_built_by_the_hybrid_workers() -> None:
    table = colocated({"actor", "rollout", "ref"})
    assert table.roles_in(HYBRID) == {"actor", "rollout", "ref"}
    assert table.hosts("ref") and not table.hosts("critic")


def test_a_role_is_found_in_its_own_group() -> None:
    table = PlacementTable({"actor": "trainers", "rollout": "generators"})
    groups = {"trainers": 1, "generators": 2}
    assert (table.find("actor", groups), table.find("rollout", groups)) == (1, 2)
    assert table.roles_in("generators") == {"rollout"}


def test_roles_with_a_pool_are_built_by_its_workers_alone() -> None:
    table = table_of({"actor", "rollout", "critic"}, {"critic", "ref"})
    assert table.roles_in(HYBRID) == {"actor", "rollout"} and table.roles_in("critic") == {"critic"}
    assert not table.roles_in("ref")


def test_a_role_without_a_group_is_an_error_with_its_name() -> None:
    with pytest.raises(AssertionError, match="role critic has no group"):
        colocated({"actor"}).find("critic", {HYBRID: 1})
    with pytest.raises(AssertionError, match="role rollout is placed in group generators, but only"):
        PlacementTable({"rollout": "generators"}).find("rollout", {HYBRID: 1})


class Prompts:
    """Four prompts, of which partition gives no references."""

    def __init__(self) -> None:
        self.facts = {"uid": np.array(["a", "b", "c", "d"])}

    def partition(self, parts: list[Any]) -> list[None]:
        return [None for _ in parts]


def generated(world_size: int, **options: Any) -> tuple[list[list[int]], list[Facts]]:
    """Return the prompts of each rank, and the facts of a row that each rank writes."""
    given: list[list[int]] = []

    def stream(method: Any, prompts: Any, partition: list[Any], **arguments: Any) -> Iterator[tuple[Facts, None]]:
        given.extend(rows.tolist() for rows in partition)
        yield {"writer": np.arange(world_size), "group_id": np.arange(world_size)}, None

    group: Any = SimpleNamespace(world_size=world_size, stream=stream)
    size = options.pop("tensor_parallel_size", 1)
    rollout = RolloutGroup(group, RolloutConfig(tensor_parallel_size=size), **options)
    prompts: Any = Prompts()
    pairs = rollout.generate(prompts, n=1, sampling=Sampling(max_tokens=1), step=1, version=0, first_sample=0)
    return given, [facts for facts, _ in pairs]


def test_rows_get_their_node_by_the_table_of_the_generating_group_alone() -> None:
    _, [facts] = generated(3, node_of_rank=[-1, 1, 1])
    assert facts["node"].tolist() == [-1, 1, 1]
    assert "writer" not in facts, "a rank of one group means nothing in another"


def test_without_a_table_all_ranks_are_on_one_node() -> None:
    _, [facts] = generated(2)
    assert facts["node"].tolist() == [0, 0]


def test_engines_are_counted_by_the_ranks_of_the_generating_group() -> None:
    given, _ = generated(4, tensor_parallel_size=2)
    assert given == [[0, 2], [0, 2], [1, 3], [1, 3]]
