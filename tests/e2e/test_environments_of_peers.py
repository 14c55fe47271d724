"""Environments, tools and agents written for other projects train three steps on the real stack, unchanged.

The policy has random weights, and tokens among which whole tool calls are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recipes.arithmetic.model import small_qwen3
from recipes.small_chat import chat_tokenizer
from tests.e2e import _peers
from tests.e2e.conftest import ROOT, Run, train

pytestmark = pytest.mark.usefixtures("ray_cluster")

STEPS = 3
OTHER_PYTHON = ROOT / ".peers/environments/bin/python"  # `make peers` installs it
needs_other_python = pytest.mark.skipif(
    not OTHER_PYTHON.exists(), reason="`make peers` installs gem and verifiers into .peers/environments"
)
Trained = Callable[..., Run]


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    """Train on a user's file with eight prompts, a new model and the tokens it needs."""

    def of(source: str, *overrides: str, calls: list[str] | None = None, context: int = 128) -> Run:
        tokenizer = chat_tokenizer([*"0123456789+=", *(calls or [])])
        model = small_qwen3(tokenizer, seed=1)
        model.config.max_position_embeddings = context
        for part in (model, tokenizer):
            part.save_pretrained(tmp_path / "model")
        numbers = list(range(8))
        rows: dict[str, Any] = {
            "prompt": [[{"role": "user", "content": f"{n}+{n}"}] for n in numbers],
            "answer": [str(2 * n) for n in numbers],
            "target": numbers,
            "number": numbers,
        }
        pq.write_table(pa.table(rows), tmp_path / "train.parquet")
        (tmp_path / "user.py").write_text(source.replace("TOKENIZER", str(tmp_path / "model")))
        return train(
            tmp_path,
            tmp_path / "out",
            "data.apply_chat_template=true",
            "data.max_prompt_length=16",
            "data.max_response_length=40",
            "reward.function=''",
            "environment.max_turns=3",
            "environment.max_turn_tokens=4",
            f"trainer.total_training_steps={STEPS}",
            "trainer.num_samples_to_save=-1",
            *(override.replace("USER", str(tmp_path / "user.py")) for override in overrides),
        )

    return of


def samples(run: Run) -> list[dict[str, Any]]:
    """Return all samples of a run, after a check that it has trained on every one of them."""
    assert sorted(run.metrics) == list(range(1, STEPS + 1))
    found = []
    for step, metrics in run.metrics.items():
        assert metrics["reward/num_failed"] == 0 and metrics["env/failures"] == 0
        assert metrics["rollout/log_prob_diff_max"] < 1e-4, "the actor reads the ids that the engine sampled"
        lines = (run.folder / f"samples/step_{step}.jsonl").read_text().splitlines()
        found += [json.loads(line) for line in lines if line]
    assert len({sample["score"] for sample in found}) > 1, "episodes differ in their scores"
    assert any(metrics["actor/grad_norm"] > 0 for metrics in run.metrics.values())
    return found


def results(sample: dict[str, Any]) -> list[str]:
    """Return the results of an episode's tool calls."""
    return [message["content"] for message in sample["episode"]["completion"] if message["role"] == "tool"]


def test_an_environment_factory_of_trl_with_get_reward(trained: Trained) -> None:
    run = trained(_peers.TRL_WITH_GET_REWARD, "environment.path=USER:CounterEnv", calls=_peers.CALLS_OF_TRL)
    found = samples(run)
    assert any(map(results, found))
    for sample in found:
        reached = sample["episode"]["environment"]["counter"]
        assert sample["score"] == pytest.approx(1.0 - abs(sample["columns"]["target"] - reached) / 10)


@pytest.mark.slow
def test_a_reward_function_of_trl_that_takes_environments(trained: Trained) -> None:
    run = trained(
        _peers.TRL_WITH_REWARD_FUNCTION,
        "environment.path=USER:CounterEnv",
        "reward.function=USER:counter_reward",
        calls=_peers.CALLS_OF_TRL,
    )
    found = samples(run)
    assert any(map(results, found))
    for sample in found:
        steps = sample["episode"]["environment"]["steps"]
        assert sample["score"] == sum(steps) + 0.125 * len(steps)
        assert len(steps) >= len(results(sample)), "the results of the last turn are not shown"


@pytest.mark.slow
def test_function_tools_of_verl(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(_peers.VERL_REWARD)
    run = trained(
        _peers.VERL_FUNCTION_TOOLS,
        "environment.tools=USER",
        "environment.max_tool_tokens=20",
        f"reward.function={tmp_path}/reward.py:compute_score",
        calls=_peers.CALLS_OF_VERL,
    )
    found = {result for sample in samples(run) for result in results(sample)}
    assert found == {"35", '{"temperature": 17}'}


@pytest.mark.slow
def test_an_agent_instance_of_openrlhf(trained: Trained) -> None:
    run = trained(_peers.OPENRLHF_AGENT, "environment.path=USER:AgentInstance")
    for sample in samples(run):
        right = any(
            sample["ground_truth"] in message["content"]
            for message in sample["episode"]["completion"]
            if message["role"] == "assistant"
        )
        assert sample["score"] == float(right)


@pytest.mark.nightly
def test_an_agent_of_the_openai_package(trained: Trained) -> None:
    run = trained(_peers.OPENAI_AGENT, "environment.path=USER:run")
    for sample in samples(run):
        roles = [message["role"] for message in sample["episode"]["completion"]]
        assert roles == ["assistant", "user", "assistant"]


@pytest.mark.slow
@needs_other_python
def test_a_game_of_gem_in_an_interpreter_that_has_gem(trained: Trained) -> None:
    run = trained(
        _peers.GEM_GAME,
        "environment.path=USER:make",
        f"environment.python={OTHER_PYTHON}",
        "data.max_prompt_length=900",
        "data.max_response_length=300",
        calls=[f"\\boxed{{{number}}}" for number in range(1, 11)],
        context=1200,
    )
    first = {sample["episode"]["prompt"][-1]["content"] for sample in samples(run)}
    assert all("You are playing Guess The Number." in text for text in first)


@pytest.mark.nightly
@needs_other_python
def test_a_taskset_of_verifiers_in_an_interpreter_that_has_verifiers(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The null harness finds uv in PATH, by which it installs the packages of its program.
    monkeypatch.setenv("PATH", f"{OTHER_PYTHON.parent}{os.pathsep}{os.environ['PATH']}")
    run = trained(
        _peers.VERIFIERS_TASKSET,
        "environment.path=USER:run",
        f"environment.python={OTHER_PYTHON}",
        "environment.max_turns=1",
        "rollout.n=2",
        "data.train_batch_size=4",  # the harness takes ten seconds or more for an episode on two cores
        "actor.mini_batch_size=4",
    )
    for sample in samples(run):
        right = str(2 * sample["columns"]["number"] % 10)
        assert sample["score"] == float(right in sample["response"])
