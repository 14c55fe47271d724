"""Pictures in the trainer: log-probs and updates are those of transformers, in every layout and on every rank."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForImageTextToText

from tests.families.pictures import PICTURE_FAMILIES
from tests.unit._fsdp_picture_ranks import SETTINGS, pictured_rows, updated
from tests.unit._fsdp_ranks import PolicyLoss, build_engine, build_learner
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from tests.unit.test_fsdp_engine import assert_same_run
from verl_like.backends.pictures import PictureReader, forbidden_ids, is_of_vision
from verl_like.config.schema import LoraConfig, ModelConfig
from verl_like.protocol import PICTURES, DataProto


@pytest.fixture(scope="module", params=PICTURE_FAMILIES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return PICTURE_FAMILIES[request.param].write(tmp_path_factory.mktemp("vision"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def expected(path: Path) -> dict[str, Any]:
    return updated(path, max_tokens=10_000)


def reference(path: Path, rows: DataProto, temperature: float, model: Any = None) -> Tensor:
    """Return [K] log-probs, one row at a time through transformers' model without the tokens of pictures."""
    model, log_probs = model or AutoModelForImageTextToText.from_pretrained(path), []
    reader = PictureReader(str(path), model=ModelConfig(path=str(path)))
    features: Any = rows["features"]
    columns = (rows.ragged(name) for name in ("prompt_ids", "response_ids"))
    for prompt, response, feature in zip(*columns, features, strict=True):
        ids = torch.from_numpy(np.concatenate([prompt, response]).astype(np.int64))[None, :-1]
        pictures = reader.inputs(feature[PICTURES]) if feature[PICTURES] else {}
        logits = model(ids, mm_token_type_ids=(ids == reader.token_id).int(), **pictures).logits[0, len(prompt) - 1 :]
        logits[:, forbidden_ids(model.config)] = -torch.inf
        of_row = (logits / temperature).log_softmax(-1)
        log_probs.append(of_row.gather(-1, torch.from_numpy(response.astype(np.int64))[:, None])[:, 0])
    return torch.cat(log_probs)


@pytest.mark.parametrize(
    ("model", "max_tokens"),
    [({}, 10_000), ({}, 60), ({"share_prompts": False}, 60), ({"remove_padding": False}, 200)],
    ids=str,
)
def test_log_probs_are_those_of_transformers(path: Path, model: dict[str, Any], max_tokens: int) -> None:
    rows = pictured_rows(path)
    engine = build_engine(path, is_frozen=True, max_tokens=max_tokens, model=model)
    found = engine.forward_log_probs(rows, temperature=0.7)["log_probs"]
    with torch.no_grad():
        np.testing.assert_allclose(found, reference(path, rows, 0.7), atol=1e-5)
    features: Any = rows["features"]
    swapped = DataProto({**rows.columns, "features": [*features[3:6], *features[:3], *features[6:]]})
    other = engine.forward_log_probs(swapped, temperature=0.7)["log_probs"]
    assert np.abs(found - other).max() > 0.01, "the first two prompts differ only by their pictures"


@pytest.mark.parametrize("setting", SETTINGS)
def test_layouts_do_not_change_updates(path: Path, expected: dict[str, Any], setting: str) -> None:
    assert_same_run(expected, updated(path, **SETTINGS[setting]))


@pytest.mark.parametrize("split", ["even", "all_on_first"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.processes
def test_two_ranks_update_as_one(path: Path, expected: dict[str, Any], setting: str, split: str) -> None:
    for found in on_ranks(partial(updated, **SETTINGS[setting]), path, split, world_size=2):
        assert_same_run(expected, found)


def test_a_run_continues_after_a_batch_without_pictures(path: Path, tmp_path: Path) -> None:
    rows = pictured_rows(path)
    text = rows.select_idxs([9, 10, 11])
    assert not any(each[PICTURES] for each in text["features"])
    learner = build_learner(path)
    learner.update(text, PolicyLoss())
    learner.save(tmp_path)
    other = build_learner(path)
    other.load(tmp_path)
    assert learner.update(rows, PolicyLoss()) == other.update(rows, PolicyLoss())


def test_adapters_are_on_the_language_part(path: Path) -> None:
    before = dict(build_engine(path, is_frozen=True).named_weights())
    lora = LoraConfig(rank=4, targets=["all-linear"])
    learnt = updated(path, max_tokens=10_000, model={"lora": lora})["weights"]
    changed = {name for name, weight in before.items() if not torch.equal(weight, learnt[name])}
    layers = {name for name in before if ".language_model.layers." in name and name.endswith("_proj.weight")}
    assert changed == layers


def test_frozen_vision_stays_as_it_is(path: Path, expected: dict[str, Any]) -> None:
    before = build_engine(path, is_frozen=True)
    frozen = updated(path, max_tokens=10_000, model={"freeze_vision": True})
    of_vision = set()
    for name, weight in before.named_weights():
        is_equal = torch.equal(weight, frozen["weights"][name])
        assert is_equal == is_of_vision(name.removeprefix("model.")), name
        of_vision |= {name} if is_equal and not torch.equal(weight, expected["weights"][name]) else set()
    assert len(of_vision) > 20, "they learn otherwise"
