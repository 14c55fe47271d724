"""Ranks that share the tokens of their rows (Ulysses): two learn, and say, what one does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit._fsdp_ranks import build_engine, make_rows, plain_updates, run_ranks, with_candidates, write_models
from tests.unit._rank_processes import join_ranks, leave_ranks
from tests.unit.test_fsdp_engine import assert_same_run


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("sequences"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def alone(work: Path) -> dict[str, Any]:
    """One rank, which has every row whole."""
    return plain_updates(work)


@pytest.fixture(scope="module")
def ranks(work: Path) -> list[dict[str, Any]]:
    return [results["sequences"] for results in run_ranks(["sequences"], world_size=2, work=work)]


@pytest.mark.processes
@pytest.mark.parametrize(
    "setting",
    [
        "plain",
        "small_passes",
        "uneven",
        "no_rows_on_one_rank",
        "no_columns_on_one_rank",
        "a_prompt_for_each_row",
        "gradient_checkpointing",
        "replicas",
        "layer_groups",
    ],
)
def test_two_ranks_learn_what_one_learns(ranks: list[dict[str, Any]], alone: dict[str, Any], setting: str) -> None:
    for found in ranks:
        assert_same_run(found[setting], alone["policy"])


@pytest.mark.processes
def test_values_adapters_and_heads_that_ranks_do_not_divide_too(
    ranks: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for found in ranks:
        for kind in ("value", "lora", "one_key_head"):
            assert_same_run(found[kind], alone[kind])


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["frozen", "candidates"])
def test_each_rank_has_the_log_probs_of_its_rows(ranks: list[dict[str, Any]], work: Path, kind: str) -> None:
    rows = make_rows() if kind == "frozen" else with_candidates(make_rows())
    expected = build_engine(work / "qwen2").forward_log_probs(rows, temperature=0.7, entropy=True, sum_pi_squared=True)
    offsets = make_rows().ragged("response_ids").offsets
    for rank, found in enumerate(ranks):
        own = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in range(rank, len(offsets) - 1, 2)])
        for name, values in expected.items():
            np.testing.assert_allclose(found[kind][name], values[own], atol=1e-6)


def test_ranks_that_cannot_be_put_into_groups_are_refused(work: Path) -> None:
    with pytest.raises(ValueError, match="sequence_parallel_size is 2, which does not divide the 1 ranks"):
        build_engine(work / "qwen2", sequence_parallel_size=2)
