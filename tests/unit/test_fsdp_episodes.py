"""Updates on episodes: rows with masks inside, and episodes of several rows, which are one sequence of the loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.unit._episodes import forked, random_episodes
from tests.unit._fsdp_episode_ranks import MODES, reference, tokens_of, two_rank_updates, update_rows, updated
from tests.unit._fsdp_ranks import build_engine, tiny_model
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from verl_like.backends.fsdp.micro_batches import learned_counts
from verl_like.protocol import DataProto

# Not linear in the tokens of a sequence; of an episode's rows the mean is reported.
OF_ROWS = {"actor/correction_chi2_sequence", "actor/correction_log_ppl_gap_abs_mean"}
EPISODES = random_episodes(3, 3, seed=1, longest=4)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("episodes")
    tiny_model("qwen2").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def tables(path: Path) -> dict[str, DataProto]:
    return {"whole": update_rows(path, EPISODES), "forked": update_rows(path, forked(EPISODES))}


@pytest.fixture(scope="module")
def expected(path: Path, tables: dict[str, DataProto]) -> dict[str, Any]:
    """One rank's update on the unforked episodes in each mode."""
    return {mode: updated(tables["whole"], path, mode) for mode in MODES}


def assert_same_update(found: dict[str, Any], expected: dict[str, Any]) -> None:
    metrics, wanted = (
        {name: value for name, value in each["metrics"].items() if name not in OF_ROWS} for each in (found, expected)
    )
    assert metrics == pytest.approx(wanted, rel=1e-4, abs=1e-5) and set(found["metrics"]) >= OF_ROWS
    assert found["weights"].keys() == expected["weights"].keys()
    for name, weights in expected["weights"].items():
        torch.testing.assert_close(found["weights"][name], weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_of_rows_with_masks_inside_is_that_of_the_formulas(
    path: Path, tables: dict[str, DataProto], expected: dict[str, Any], mode: str
) -> None:
    masks = tables["whole"].ragged("response_mask")
    assert any(not row[np.argmax(row) :].all() for row in masks), "no row has a token of the environment inside"
    for name, value in reference(path, tables["whole"], mode).items():
        assert expected[mode]["metrics"][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("mode", MODES)
def test_a_fork_changes_no_denominator_and_no_gradient(
    path: Path, tables: dict[str, DataProto], expected: dict[str, Any], mode: str
) -> None:
    assert len(tables["forked"]) > len(tables["whole"])
    assert learned_counts(tables["forked"]) == pytest.approx(learned_counts(tables["whole"]), rel=1e-12)
    assert_same_update(updated(tables["forked"], path, mode), expected[mode])


def test_a_fork_that_counts_as_two_sequences_would_be_noticed(
    path: Path, tables: dict[str, DataProto], expected: dict[str, Any]
) -> None:
    rows = tables["forked"]
    uncounted = DataProto({name: column for name, column in rows.columns.items() if not name.startswith("episode_")})
    found = updated(uncounted, path, "seq-mean-token-mean")
    assert found["metrics"]["actor/loss"] != pytest.approx(
        expected["seq-mean-token-mean"]["metrics"]["actor/loss"], rel=1e-2
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 20},
        {"model": {"share_prompts": False}},
        {"model": {"remove_padding": False}, "max_tokens": 60},
        {"model": {"gradient_checkpointing": "true"}},
    ],
    ids=["small passes", "a prompt for each row", "padded", "gradient checkpointing"],
)
@pytest.mark.parametrize("rows", [pytest.param("whole", marks=pytest.mark.slow), "forked"])
def test_how_rows_are_packed_does_not_matter(
    path: Path, tables: dict[str, DataProto], expected: dict[str, Any], settings: dict[str, Any], rows: str
) -> None:
    found = updated(tables[rows], path, "seq-mean-token-mean", **settings)
    assert_same_update(found, expected["seq-mean-token-mean"])


def test_log_probs_and_entropies_of_all_tokens_are_those_of_single_rows(
    path: Path, tables: dict[str, DataProto]
) -> None:
    rows = tables["forked"]
    found = build_engine(path).forward_log_probs(rows, temperature=0.8, entropy=True)
    model = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        plain = [tokens_of(model, rows, row) for row in range(len(rows))]
    for name, position in (("log_probs", 0), ("entropy", 1)):
        np.testing.assert_allclose(found[name], torch.cat([each[position] for each in plain]).numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.processes
def test_the_rows_of_an_episode_may_be_on_two_ranks_or_split_between_them(
    path: Path, tables: dict[str, DataProto], expected: dict[str, Any]
) -> None:
    for ranks in on_ranks(two_rank_updates, path, tables["forked"], world_size=2):
        assert_same_update(ranks["shards"], expected["seq-mean-token-mean"])
        assert_same_update(ranks["prompts"], expected["prompt-mean"])
        assert_same_update(ranks["ulysses"], expected["seq-mean-token-mean"])
