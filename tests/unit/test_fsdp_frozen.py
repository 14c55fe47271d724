"""A frozen engine takes the weights of one that learns, and keeps them in checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit._fsdp_frozen_ranks import averaged_and_saved, copied_and_saved
from tests.unit._fsdp_ranks import build_engine, make_rows, tiny_model
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from verl_like.config.schema import FsdpConfig


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frozen")
    tiny_model("qwen2", tied=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


def test_a_copy_computes_the_log_probs_of_the_policy_and_a_checkpoint_restores_it(path: Path, tmp_path: Path) -> None:
    found = copied_and_saved(path, tmp_path / "ref")
    assert not np.array_equal(found["initial"], found["policy"])
    np.testing.assert_array_equal(found["copy"], found["policy"])
    np.testing.assert_array_equal(found["after another update"], found["copy"])
    np.testing.assert_array_equal(found["restored"], found["copy"])


def check_average(found: dict[str, dict[str, torch.Tensor]]) -> None:
    """Compare averages of weight 0.25 with float64; the embedding is also the output layer, and is averaged once."""
    assert "model.embed_tokens.weight" in found["average"]
    for name, average in found["average"].items():
        policy = found["policy"][name].double()
        expected = 0.25 * policy + 0.75 * found["initial"][name].double()
        torch.testing.assert_close(average.double(), expected, atol=1e-7, rtol=1e-6)
        torch.testing.assert_close(
            found["next"][name].double(), 0.25 * policy + 0.75 * expected, atol=1e-7, rtol=1e-6, msg=name
        )
        assert torch.equal(found["restored"][name], found["next"][name]), name
    assert any(not torch.equal(each, found["initial"][name]) for name, each in found["average"].items())


def test_an_average_moves_towards_the_policy_and_continues_bit_for_bit(path: Path, tmp_path: Path) -> None:
    check_average(averaged_and_saved(path, tmp_path / "ref", weight=0.25))


def test_an_average_has_float32_weights_whatever_the_dtype_of_its_passes(path: Path) -> None:
    fsdp = FsdpConfig(shard_size="all", param_dtype="bfloat16")
    dtypes = [
        {parameter.dtype for parameter in build_engine(path, fsdp=fsdp, is_frozen=True, **more).module.parameters()}
        for more in ({}, {"is_averaged": True})
    ]
    assert dtypes == [{torch.bfloat16}, {torch.float32}]


def test_a_model_that_learns_saves_its_weights_with_its_learner(path: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="has a learner, which saves and loads its weights"):
        build_engine(path).begin_save_weights(tmp_path)


def test_a_folder_without_a_checkpoint_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no engine checkpoint \(no \.metadata file\)"):
        build_engine(path, is_frozen=True).load_saved_weights(tmp_path)


def test_a_copy_of_another_model_is_refused(path: Path, tmp_path: Path) -> None:
    tiny_model("qwen3").save_pretrained(tmp_path)
    with pytest.raises(AssertionError, match="which this one lacks"):
        build_engine(path, is_frozen=True).copy_weights(build_engine(tmp_path))


@pytest.mark.slow
@pytest.mark.processes
def test_shards_are_averaged_on_two_ranks(path: Path, tmp_path: Path) -> None:
    for found in on_ranks(_averaged, path, tmp_path / "ref", world_size=2):
        check_average(found)


def _averaged(path: Path, folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return averaged_and_saved(path, folder, weight=0.25)


@pytest.mark.slow
@pytest.mark.processes
def test_shards_take_the_rows_of_a_copy_on_two_ranks(path: Path, tmp_path: Path) -> None:
    for found in on_ranks(copied_and_saved, path, tmp_path / "ref", world_size=2):
        assert found["is_sharded"]
        np.testing.assert_array_equal(found["copy"], found["policy"])
        np.testing.assert_array_equal(found["restored"], found["copy"])
    rows = make_rows()
    engine = build_engine(path, is_frozen=True)
    engine.load_saved_weights(tmp_path / "ref")  # on another number of ranks
    own = engine.forward_log_probs(rows, temperature=1.0)["log_probs"]
    np.testing.assert_allclose(own, found["copy"], atol=1e-5)
    assert torch.isfinite(torch.from_numpy(own)).all()
