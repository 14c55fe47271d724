"""Pictures in the trainer: log-probs and updates are those of transformers, in every layout and on every rank."""

from __future__ import annotations

import shutil
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
from tests.unit._fsdp_picture_ranks import (
    SETTINGS,
    episode_rows,
    pictured_rows,
    reader_of,
    updated,
    updated_on_episodes,
)
from tests.unit._fsdp_ranks import PolicyLoss, build_engine, build_learner
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from tests.unit.test_fsdp_engine import assert_same_run
from verl_like.backends.fsdp.models import load_config
from verl_like.backends.pictures import PictureReader, forbidden_ids, is_of_vision
from verl_like.config.schema import LoraConfig, ModelConfig
from verl_like.protocol import PICTURES, PROMPT_PICTURES, DataProto, Ragged

LAYOUTS = pytest.mark.parametrize(
    ("model", "max_tokens"),
    [({}, 10_000), ({}, 60), ({"share_prompts": False}, 60), ({"remove_padding": False}, 200)],
    ids=str,
)


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


def test_the_token_of_a_picture_is_that_of_the_named_tokenizer(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "model")
    if (path / "processor_config.json").exists():
        pytest.skip("the processor that counts its tokens needs the tokenizer in the model's folder")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "model" / file).unlink()
    known = ModelConfig(path=str(tmp_path / "model"), tokenizer_path=str(path))
    assert PictureReader(known.path, model=known).token == reader_of(path).token


def test_sections_of_a_config_are_not_overridden(path: Path) -> None:
    for override, reason in (
        ({"text_config": {"max_position_embeddings": 64}}, "'text_config', which is a section of"),
        ({"vision_config": {"depth": 1}}, "'vision_config', which is a section of"),
    ):
        with pytest.raises(
            ValueError, match=rf"model\.override_config has {reason}.*expected a value outside sections"
        ):
            load_config(str(path), model=ModelConfig(path=str(path), override_config=override))


def pictures_in(rows: DataProto) -> list[list[bytes]]:
    """Return the pictures of each row, in the order of their tokens."""
    features: Any = rows["response_features" if "response_features" in rows else "features"]
    return [[*each.get(PROMPT_PICTURES, []), *each.get(PICTURES, [])] for each in features]


def reference(path: Path, rows: DataProto, temperature: float, model: Any = None) -> Tensor:
    """Return [K] float64 log-probs, one row at a time through transformers' model without the tokens of pictures.

    Their own log-probs are 0. In float32, transformers' model is itself up to 8e-6 nats from these;
    a given ``model`` becomes float64, too.
    """
    model = (model or AutoModelForImageTextToText.from_pretrained(path)).double()
    log_probs = []
    reader, columns = reader_of(path), (rows.ragged(name) for name in ("prompt_ids", "response_ids"))
    for prompt, response, shown in zip(*columns, pictures_in(rows), strict=True):
        ids = torch.from_numpy(np.concatenate([prompt, response]).astype(np.int64))[None, :-1]
        given = reader.inputs(shown) if shown else {}
        pictures = {name: each.double() if each.is_floating_point() else each for name, each in given.items()}
        logits = model(ids, mm_token_type_ids=(ids == reader.token_id).int(), **pictures).logits[0, len(prompt) - 1 :]
        logits[:, forbidden_ids(model.config)] = -torch.inf
        of_row = (logits / temperature).log_softmax(-1)
        targets = torch.from_numpy(response.astype(np.int64))
        of_targets = of_row.gather(-1, targets[:, None])[:, 0]
        log_probs.append(torch.where(targets == reader.token_id, 0.0, of_targets))
    return torch.cat(log_probs)


@LAYOUTS
def test_log_probs_of_episodes_are_those_of_transformers(path: Path, model: dict[str, Any], max_tokens: int) -> None:
    rows = episode_rows(path)
    engine = build_engine(path, is_frozen=True, max_tokens=max_tokens, model=model)
    found = engine.forward_log_probs(rows, temperature=0.7, entropy=True, sum_pi_squared=True)
    with torch.no_grad():
        np.testing.assert_allclose(found["log_probs"], reference(path, rows, 0.7), atol=1e-5)
    is_picture = rows.ragged("response_ids").values == reader_of(path).token_id
    assert is_picture.sum() > 30 and not found["log_probs"][is_picture].any()
    assert all(np.isfinite(values).all() for values in found.values())
    features: Any = rows["response_features"]
    swapped = DataProto({**rows.columns, "response_features": [*features[3:6], *features[:3], *features[6:]]})
    others = engine.forward_log_probs(swapped, temperature=0.7)["log_probs"]
    assert np.abs(found["log_probs"] - others).max() > 0.01


@LAYOUTS
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


# Pictures between turns.


def gradients(path: Path, rows: DataProto, *, of_pictures: bool) -> dict[str, float]:
    """Return the largest gradient of each parameter for the log-probs of pictures' tokens, or of the others."""
    engine = build_learner(path).engine
    for batch in engine.plan(rows).passes():
        log_probs = engine.outputs(batch, entropy=False)["log_probs"][batch.valid]
        is_picture = batch.inputs.targets[: len(log_probs)] == reader_of(path).token_id
        (log_probs * (is_picture == of_pictures)).sum().backward()
    named = engine.module.backbone.base_model.named_parameters()
    return {name: float(each.grad.abs().max()) for name, each in named if each.grad is not None}


@pytest.fixture(scope="module")
def expected_of_episodes(path: Path) -> dict[str, Any]:
    return updated_on_episodes(path, max_tokens=10_000)


@pytest.mark.parametrize("setting", [*SETTINGS, "padded"])
def test_layouts_do_not_change_updates_on_episodes(
    path: Path, expected_of_episodes: dict[str, Any], setting: str
) -> None:
    settings = SETTINGS.get(setting, {"model": {"remove_padding": False}})
    assert_same_run(expected_of_episodes, updated_on_episodes(path, **settings))


@pytest.mark.parametrize("split", ["even", "all_on_first"])
@pytest.mark.processes
def test_two_ranks_update_on_episodes_as_one(path: Path, expected_of_episodes: dict[str, Any], split: str) -> None:
    for found in on_ranks(partial(updated_on_episodes, max_tokens=60), path, split, world_size=2):
        assert_same_run(expected_of_episodes, found)


def test_the_picture_of_a_response_teaches_vision(path: Path) -> None:
    rows = episode_rows(path).select_idxs([10, 11])
    features: Any = rows["response_features"]
    assert not any(PROMPT_PICTURES in each for each in features)
    found = gradients(path, rows, of_pictures=False)
    assert all(largest > 0 for name, largest in found.items() if is_of_vision(name) and name.endswith("weight")), found


def test_the_tokens_of_pictures_have_no_gradient(path: Path) -> None:
    found = gradients(path, episode_rows(path), of_pictures=True)
    assert found and not any(found.values()), found


def test_a_response_that_ends_within_a_picture_is_refused(path: Path) -> None:
    rows = episode_rows(path).select_idxs([1])
    ids = rows.ragged("response_ids")[0]
    last = int(np.flatnonzero(ids == reader_of(path).token_id)[-1])
    cut = DataProto({**rows.columns, "response_ids": Ragged.from_rows([ids[: last + 1]], "int32")})
    with pytest.raises(AssertionError, match="the response of row 0 ends within a picture"):
        build_engine(path, is_frozen=True).forward_log_probs(cut, temperature=1.0)


def test_a_teacher_sees_the_pictures(path: Path) -> None:
    engine = build_learner(path).engine
    engine.distil_from([build_engine(path, is_frozen=True)], beta=0.0)
    for batch in engine.plan(episode_rows(path)).passes():
        divergence = engine.outputs(batch, entropy=False)["divergence"]
        torch.testing.assert_close(divergence, torch.zeros_like(divergence), atol=1e-5, rtol=0)
