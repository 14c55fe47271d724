"""Experts that stay on their ranks: several ranks learn what one rank learns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit._fsdp_expert_ranks import updated, updates
from tests.unit._fsdp_router_ranks import write_mixture
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from tests.unit.test_fsdp_engine import assert_same_run
from verl_like.config.schema import FsdpConfig


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixture(tmp_path_factory.mktemp("mixture"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def expected(path: Path) -> dict[str, Any]:
    """What one rank learns with gathered experts."""
    return updated(path, fsdp=FsdpConfig(shard_size="all"), max_tokens=10_000)


def test_one_rank_with_all_experts_learns_the_same(path: Path, expected: dict[str, Any]) -> None:
    assert_same_run(updated(path), expected, atol=1e-5)


@pytest.fixture(scope="module")
def two_ranks(path: Path) -> list[dict[str, Any]]:
    return on_ranks(updates, path, world_size=2)


@pytest.mark.processes
@pytest.mark.parametrize("setting", ["plain"])
def test_two_ranks_learn_what_one_learns(
    two_ranks: list[dict[str, Any]], expected: dict[str, Any], setting: str
) -> None:
    for found in two_ranks:
        assert_same_run(found[setting], expected, atol=1e-5)
