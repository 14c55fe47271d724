"""Prompts with pictures in vLLM on CPU, against plain transformers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText

from tests._tiny_model import weights_of
from tests.e2e._engine_process import EngineProcesses
from tests.families.pictures import PICTURE_FAMILIES
from tests.unit._fsdp_picture_ranks import pictured_rows
from tests.unit.test_fsdp_pictures import reference
from verl_like.backends.base import Finished, Request, Sampling
from verl_like.backends.pictures import forbidden_ids
from verl_like.protocol import DataProto, Ragged

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module", params=PICTURE_FAMILIES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return PICTURE_FAMILIES[request.param].write(tmp_path_factory.mktemp("vision"))


@pytest.fixture(scope="module")
def engine(path: Path) -> Iterator[Any]:
    run_id = f"test-{uuid.uuid4().hex[:8]}"
    found = EngineProcesses(path, max_model_len=64, run_id=run_id, kv_cache_memory_gib=0.02)
    yield found
    found.close()


def asked(rows: DataProto, sampling: Sampling) -> list[Request]:
    features: Any = rows["features"]
    return [
        Request(
            request_id=f"r{number}",
            prompt_ids=ids.tolist(),
            seed=77 * number,
            sampling=sampling,
            features=features[number],
        )
        for number, ids in enumerate(rows.ragged("prompt_ids"))
    ]


def responses(rows: DataProto, finished: list[Finished]) -> tuple[DataProto, np.ndarray]:
    """Return the rows with these responses, and the log-probs of the engine."""
    by_id = {done.request_id: done for done in finished}
    in_order = [by_id[f"r{number}"] for number in range(len(rows))]
    ids = Ragged.from_rows([done.response_ids for done in in_order], "int32")
    found = DataProto({name: rows[name] for name in ("prompt_ids", "features")} | {"response_ids": ids})
    return found, np.concatenate([done.log_probs for done in in_order])


def synced(engine: Any, path: Path, *, seed: int, version: int, forbidden_bias: float = 0.0) -> Any:
    """Return transformers' model with weights drawn from ``seed``, which the engine has, too."""
    model = AutoModelForImageTextToText.from_pretrained(path)
    weights_of(model, seed=seed)
    if forbidden_bias:
        with torch.no_grad():
            for row in forbidden_ids(model.config):
                model.get_input_embeddings().weight[row] *= forbidden_bias
    engine.call("sync", version, {name: tensor.numpy() for name, tensor in model.state_dict().items()})
    return model


def test_log_probs_equal_transformers_after_each_sync(engine: Any, path: Path) -> None:
    rows = pictured_rows(path)
    for version, seed in enumerate([11, 12]):
        model = synced(engine, path, seed=seed, version=version)
        for temperature in (0.8, 0.0):
            sampling = Sampling(max_tokens=8, temperature=temperature)
            found, log_probs = responses(rows, engine.call("generate", asked(rows, sampling)))
            with torch.no_grad():
                np.testing.assert_allclose(log_probs, reference(path, found, temperature or 1.0, model), atol=1e-4)


def test_tokens_of_pictures_are_never_sampled(engine: Any, path: Path) -> None:
    model = synced(engine, path, seed=11, version=7, forbidden_bias=30.0)
    rows = pictured_rows(path)
    found, log_probs = responses(rows, engine.call("generate", asked(rows, Sampling(max_tokens=8))))
    sampled = set(found.ragged("response_ids").values.tolist())
    assert not sampled & set(forbidden_ids(model.config))
    with torch.no_grad():
        np.testing.assert_allclose(log_probs, reference(path, found, 1.0, model), atol=1e-4)


def test_a_prompt_that_does_not_fit_its_pictures_is_refused(engine: Any, path: Path) -> None:
    synced(engine, path, seed=11, version=8)
    [request] = asked(pictured_rows(path).select_idxs([0]), Sampling(max_tokens=2))
    short = replace(request, prompt_ids=[token for token in request.prompt_ids if token != 5] + [5])
    with pytest.raises(ValueError, match=r"a picture of \d+ tokens has fewer in the prompt"):
        engine.call("generate", [short])
