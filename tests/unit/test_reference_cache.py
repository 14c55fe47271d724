"""The reference's log-probs on disk: what is computed again, and what never is read."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from verl_like.config.schema import Config
from verl_like.protocol import Array
from verl_like.training.reference import ReferenceCache, Text, row_digests
from verl_like.training.row_jobs import reference_settings

TOKENS = [
    (np.array(prompt), np.array(response))
    for prompt, response in (([1, 2], [3]), ([1], [2, 3]), ([1, 2], [4, 0]), ([1, 2], [4]))
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


class Asked:
    """Computes -1, -2, ... and records which rows it was asked for."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def __call__(self, indices: Array) -> Array:
        self.rows.append(indices.tolist())
        return -1.0 - indices


def completed(folder: Path | str, model: Path, rows: list[Text], **changes: str) -> Asked:
    """Check the result of a new process and return what it computed."""
    asked = Asked()
    cache = ReferenceCache(str(folder), model=str(model), settings=changes.get("settings", "float32"))
    found = cache.completed(rows, asked)
    assert found.dtype == np.float64 and len(found) == len(rows)
    return asked


def test_rows_differ_by_prompt_and_response() -> None:
    assert len(set(row_digests(TOKENS))) == len(TOKENS)


def test_only_new_rows_are_computed(tmp_path: Path, model: Path) -> None:
    assert completed(tmp_path / "cache", model, TOKENS[:2]).rows == [[0, 1]]
    assert completed(tmp_path / "cache", model, TOKENS[:2]).rows == []
    assert completed(tmp_path / "cache", model, [TOKENS[1], TOKENS[2], TOKENS[0], TOKENS[3]]).rows == [[1, 3]]
    cache = ReferenceCache(str(tmp_path / "cache"), model=str(model), settings="float32")
    assert cache.completed(TOKENS, Asked()).tolist() == [-1.0, -2.0, -2.0, -4.0]


def test_a_row_that_occurs_twice_is_computed_at_its_places(tmp_path: Path, model: Path) -> None:
    assert completed(tmp_path / "cache", model, [TOKENS[0], TOKENS[0]]).rows == [[0, 1]]


@pytest.mark.parametrize("change", ["weights", "config", "settings", "another file"])
def test_another_reference_has_its_own_log_probs(tmp_path: Path, model: Path, change: str) -> None:
    completed(tmp_path / "cache", model, TOKENS)
    if change == "weights":
        (model / "model.safetensors").write_bytes(b"others!")  # equally long
    elif change == "config":
        (model / "config.json").write_text('{"rope_theta": 1}')
    elif change == "another file":
        (model / "model-2.safetensors").write_bytes(b"more")
    settings = "bfloat16" if change == "settings" else "float32"
    assert completed(tmp_path / "cache", model, TOKENS, settings=settings).rows == [[0, 1, 2, 3]]


def test_a_copy_of_the_model_has_the_same_log_probs(tmp_path: Path, model: Path) -> None:
    completed(tmp_path / "cache", model, TOKENS)
    moved = model.rename(tmp_path / "moved")
    (moved / "tokenizer.json").write_text("{}")
    assert completed(tmp_path / "cache", moved, TOKENS).rows == []


def test_damaged_files_are_named_and_computed_again(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    completed(tmp_path / "cache", model, TOKENS)
    [file] = (tmp_path / "cache").glob("*/*.npy")
    for damage in (file.read_bytes()[:-5], b"", b"junk", b"\x93NUMPY"):
        file.write_bytes(damage)
        caplog.clear()
        for other in file.parent.glob("*.npy"):
            if other != file:
                other.unlink()
        assert completed(tmp_path / "cache", model, TOKENS).rows == [[0, 1, 2, 3]]
        assert f"{file} is not read and its rows are computed again" in caplog.text
    np.save(file, np.zeros(3))
    assert ReferenceCache(str(tmp_path / "cache"), model=str(model), settings="float32")
    (tmp_path / "cache/files.json").write_text("[1")
    assert completed(tmp_path / "cache", model, TOKENS).rows == []


def test_log_probs_of_a_defective_model_are_not_kept(tmp_path: Path, model: Path) -> None:
    cache = ReferenceCache(str(tmp_path / "cache"), model=str(model), settings="float32")
    found = cache.completed(TOKENS, lambda indices: np.array([-1.0, np.nan, -np.inf, -4.0]))
    assert found.tolist()[:1] == [-1.0] and np.isnan(found[1])
    assert completed(tmp_path / "cache", model, TOKENS).rows == [[1, 2]]


def test_the_dtype_is_that_of_the_model_which_computes_them() -> None:
    config = Config()
    settings = {reference_settings(config, "cpu"), reference_settings(config, "cuda")}
    config.actor.fsdp.param_dtype = "float32"
    settings.add(reference_settings(config, "cuda"))
    config.ref.fsdp.param_dtype = "bfloat16"  # read by another model only
    assert reference_settings(config, "cuda") in settings and len(settings) == 3
    config.dpo.ref_path = "another"
    assert reference_settings(config, "cuda") not in settings


def test_a_run_continues_without_a_cache(tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert completed(tmp_path / "file/cache", model, TOKENS).rows == [[0, 1, 2, 3]]
    assert "trainer.reference_cache: the log-probs are not kept in" in caplog.text
    assert completed("", model, TOKENS).rows == [[0, 1, 2, 3]]
    assert completed(tmp_path / "cache", Path("nobody/no-such-model"), TOKENS).rows == [[0, 1, 2, 3]]
    assert not (tmp_path / "cache").exists()
