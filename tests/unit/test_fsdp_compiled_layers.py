"""Decoder layers that run compiled: they learn what eager ones learn, and nothing is compiled in a step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from tests.unit._fsdp_ranks import (
    LORA,
    WHOLE,
    PolicyLoss,
    build_engine,
    build_learner,
    make_rows,
    plain_updates,
    run_ranks,
    weights_of,
    write_models,
)
from tests.unit._rank_processes import join_ranks, leave_ranks
from tests.unit.test_fsdp_engine import assert_same_run
from verl_like.backends.base import EngineSettings
from verl_like.backends.fsdp import engine
from verl_like.backends.fsdp.learner import FsdpLearner
from verl_like.config.schema import Config
from verl_like.workers import hybrid

pytestmark = pytest.mark.processes

DEADLINE_S = 400.0
CHECKPOINTED = {"gradient_checkpointing": "true"}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


def steps(learner: FsdpLearner) -> dict[str, Any]:
    """Passes and updates of many sizes, with shared prompts; and the weights after them."""
    metrics = []
    for seed in range(4):
        rows = make_rows(6 + 5 * seed, seed=seed)
        learner.engine.forward_log_probs(rows, temperature=1.0)
        metrics.append(learner.update(rows, PolicyLoss()))
    return {"metrics": metrics, "weights": weights_of(learner.engine)}


def num_graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="shards"),
        pytest.param({"fsdp": WHOLE, "model": LORA | CHECKPOINTED}, id="adapters-of-replicas-recomputed"),
    ],
)
def test_compiled_layers_learn_what_eager_ones_do_and_no_step_compiles(work: Path, settings: dict[str, Any]) -> None:
    torch._dynamo.reset()  # layers of another test that have this shape would lend theirs
    expected = steps(build_learner(work / "qwen2", **settings))
    learner = build_learner(work / "qwen2", compile_layers=True, **settings)
    before = num_graphs()
    assert learner.engine.compile_layers(DEADLINE_S)
    made = num_graphs()
    assert made > before
    found = steps(learner)
    if learner.engine.module.adapters is not None:
        learner.engine.forward_log_probs(make_rows(7), temperature=1.0, without_adapters=True)
    with torch.profiler.profile() as profile:
        learner.engine.forward_log_probs(make_rows(9), temperature=1.0)
    regions = [event.count for event in profile.key_averages() if event.key.startswith("Torch-Compiled Region")]
    # Of each of two layers: to its attention, there to the kernel, from there to the output, and the rest.
    assert sum(regions) == 2 * 4
    assert num_graphs() == made
    assert_same_run(found, expected, atol=1e-5)


@pytest.mark.nightly
def test_ranks_that_share_sequences_learn_the_same_with_compiled_layers(work: Path) -> None:
    for results in run_ranks(["compiled"], world_size=2, work=work):
        assert_same_run(results["compiled"], plain_updates(work)["policy"], atol=1e-5)


def test_layers_whose_compilation_misses_its_deadline_run_eagerly(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    learner = build_learner(work / "qwen2", compile_layers=True)
    assert learner.engine.compile_layers(0.0) is False
    assert "compiling the decoder layers took longer than 0 s" in caplog.text
    before = num_graphs()
    assert learner.update(make_rows(seed=1), PolicyLoss())["skipped_updates"] == 0
    assert num_graphs() == before


@pytest.mark.slow
def test_layers_that_do_not_compile_run_eagerly(
    work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    assert build_engine(work / "qwen2", compile_layers=True).compile_layers(120.0) is False
    assert "compiling the decoder layers failed" in caplog.text


def test_layers_are_compiled_where_that_is_configured_alone(work: Path) -> None:
    assert build_engine(work / "qwen2").compile_layers(DEADLINE_S) is False


def test_the_first_rank_of_a_node_tries_and_the_others_use_its_result(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build_engine(work / "qwen2")
    tried = []

    def trial() -> bool:
        tried.append(True)
        return False

    assert built.succeeds_on_nodes(trial) is False and tried == [True]
    monkeypatch.setattr(engine, "is_first_of_node", lambda: False)
    assert built.succeeds_on_nodes(trial) is True and tried == [True]


@pytest.mark.parametrize(("device", "is_on"), [("cuda", True), ("cpu", False)])
def test_compilation_is_on_by_default_on_gpus_alone(device: str, is_on: bool) -> None:
    setup = SimpleNamespace(config=Config(), device=device, generates=True)

    def settings() -> EngineSettings:
        return hybrid._settings(setup, setup.config.actor, "")  # type: ignore[arg-type]

    assert (settings().use_torch_compile, settings().compile_layers) == (is_on, is_on)
    assert settings().model.kernels == ("auto" if is_on else "torch")
    setup.config.actor.compile_layers = "true"
    assert settings().model.kernels == "torch", "layers are fused by one of both"
    setup.config.actor.use_torch_compile = setup.config.actor.compile_layers = "false"
    assert (settings().use_torch_compile, settings().compile_layers) == (False, False)
    setup.config.actor.compile_layers, setup.config.model.remove_padding = "auto", False
    assert not settings().compile_layers
