"""Reward models and judges in separate processes on a real Ray cluster: order, rounds, failures, deadlines."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
from transformers import AutoModelForSequenceClassification

from tests._tiny_model import END_ID, VOCAB_SIZE, save_model
from tests.ray.conftest import ROOT
from tests.unit._reward import messages
from tests.unit.test_fsdp_reward_model import save_classifier
from tests.unit.test_workers_judge import DIGIT, TEMPLATE, block_of, greedy, save_judge, sums
from verl_like.config.schema import (
    Config,
    DataConfig,
    JudgeConfig,
    ModelConfig,
    RewardConfig,
    RewardModelConfig,
    TrainerConfig,
)
from verl_like.context import current
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.errors import Interrupt, Interrupted, StageTimeout, WorkerError
from verl_like.controller.store import StoreCounters
from verl_like.controller.worker_group import WorkerGroup
from verl_like.protocol import DataProto, Ragged
from verl_like.reward.scores import Scores
from verl_like.telemetry.ledger import Ledger
from verl_like.training.rewards import ModelScoring, ScoringModel
from verl_like.workers.environment import judge_environment, reward_model_environment
from verl_like.workers.reward_models.groups import (
    ColocatedModel,
    SeparateModel,
    SeparateScoring,
    judge,
    separate_reward_model,
)
from verl_like.workers.setup import WorkerSetup

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    root = tmp_path_factory.mktemp("models")
    return Config(
        model=ModelConfig(path=str(save_model(root / "policy", family="qwen2", tied=True))),
        data=DataConfig(apply_chat_template=False),
        reward=RewardConfig(
            model=RewardModelConfig(path=str(save_classifier(root / "classifier", "qwen3")), max_length=64),
            judge=JudgeConfig(
                path=str(save_judge(root / "judge", tied=True)),
                template=TEMPLATE,
                score_pattern=DIGIT,
                max_score=9,
                max_tokens=16,
                max_model_len=64,
                kv_cache_memory_gib=0.05,
                tensor_parallel_size=2,
            ),
        ),
        trainer=TrainerConfig(stage_timeout_s=60),
    )


def started(config: Config, name: str, factory: str, *, world_size: int, env: dict[str, str]) -> WorkerGroup:
    group = WorkerGroup(name, world_size=world_size, placement=None, env={"PYTHONPATH": str(ROOT), **env}, timeout_s=60)
    group.build(
        factory,
        lambda rank: (
            WorkerSetup(
                config=config,
                rank=rank,
                world_size=world_size,
                device="cpu",
                run_id="test-scorers",
                roles=frozenset({"reward_model"}),
            ),
        ),
        timeout_s=60,
    )
    return group


@pytest.fixture(scope="module")
def groups(ray_cluster: None, config: Config) -> Iterator[dict[str, WorkerGroup]]:
    """Start all at once, because a start is mostly imports."""
    env = reward_model_environment(config, "cpu")
    made = {
        "judge": started(
            config,
            "judge",
            "verl_like.workers.reward_models.judge:build_roles",
            world_size=2,
            env=judge_environment(config, "cpu"),
        ),
        "own": started(config, "own", "verl_like.workers.reward_models.classifier:build_roles", world_size=1, env=env),
        "hybrid": started(config, "hybrid", "verl_like.workers.hybrid:build_roles", world_size=2, env=env),
    }
    for group in made.values():
        group.wait_built(timeout_s=120)
    yield made
    for group in made.values():
        group.shut_down()


@pytest.fixture
def reward_model(groups: dict[str, WorkerGroup]) -> WorkerGroup:
    """Run on two ranks; hybrid workers build the same model as separate workers."""
    return groups["hybrid"]


def rows_of(count: int, *, seed: int = 0) -> DataProto:
    rng = np.random.default_rng(seed)
    prompts, responses = (
        [rng.integers(3, VOCAB_SIZE, rng.integers(1, 12)).tolist() for _ in range(count)] for _ in range(2)
    )
    return DataProto(
        {
            "prompt_ids": Ragged.from_rows(prompts, "int32"),
            "response_ids": Ragged.from_rows([[*r, END_ID] for r in responses], "int32"),
            "prompt_text": ["p"] * count,
            "reward_inputs": [{"messages": "p", "ground_truth": "", "extra_info": {}}] * count,
        }
    )


@torch.no_grad()
def reference(config: Config, table: DataProto) -> list[float]:
    model = AutoModelForSequenceClassification.from_pretrained(config.reward.model.path, dtype=torch.float32)
    pairs = zip(table.ragged("prompt_ids"), table.ragged("response_ids"), strict=True)
    return [model(torch.tensor(np.concatenate(pair).astype(np.int64)[None])).logits.item() for pair in pairs]


def begin(model: ScoringModel, *tables: DataProto) -> ModelScoring:
    """Score these blocks in a separate step, in the form in which a rollout passes them on."""
    scoring = model.open()
    for table in tables:
        add(scoring, table)
    return scoring


def add(scoring: ModelScoring, table: DataProto) -> None:
    lengths = {f"{part}_tokens": table.ragged(f"{part}_ids").lengths for part in ("prompt", "response")}
    scoring.begin({"uid": np.arange(len(table)), **lengths}, ray.put(table))


def scores_of(scoring: ModelScoring) -> Scores:
    scoring.finish()
    return scoring.scores()


@pytest.mark.parametrize("sizes", [(7,), (4, 1, 2), (1,)])
def test_a_colocated_reward_model_scores_rows_in_the_order_of_their_blocks(
    reward_model: WorkerGroup, config: Config, sizes: tuple[int, ...]
) -> None:
    """A single row leaves one of the two ranks without any."""
    model = ColocatedModel(reward_model, name="model", weight=1.0)
    tables = [rows_of(size, seed=number) for number, size in enumerate(sizes)]
    found = scores_of(begin(model, *tables))
    np.testing.assert_allclose(
        found.score, [score for table in tables for score in reference(config, table)], atol=1e-5
    )
    assert found.score.dtype == np.float32
    assert messages(found) == [""] * sum(sizes) and found.details.tolist() == [{}] * sum(sizes)


def test_a_colocated_reward_model_does_not_touch_the_workers_while_the_rollout_runs(reward_model: WorkerGroup) -> None:
    model = ColocatedModel(reward_model, name="model", weight=1.0)
    current(Ledger).take()
    scoring = begin(model, rows_of(2))
    assert "reward_model" not in current(Ledger).take()
    scores_of(scoring)
    assert current(Ledger).take()["reward_model"] > 0, "a separate stage"


@pytest.mark.parametrize("num_blocks", [1, 2, 5])
def test_blocks_of_a_sharded_reward_model_come_back_in_the_order_they_were_begun(
    reward_model: WorkerGroup, config: Config, num_blocks: int
) -> None:
    model = separate_reward_model(reward_model, weight=1.0, timeout_s=60)
    blocks = [rows_of(2 + number, seed=number) for number in range(num_blocks)]
    current(StoreCounters).take()
    scoring = begin(model, *blocks)
    found = scores_of(scoring)
    np.testing.assert_allclose(
        found.score, [score for block in blocks for score in reference(config, block)], atol=1e-5
    )
    assert current(StoreCounters).take() == sum(block.nbytes for block in blocks)
    assert len(scores_of(scoring)) == 0, "scores are returned once"


def test_a_separate_worker_scores_each_block_at_once(groups: dict[str, WorkerGroup], config: Config) -> None:
    model = separate_reward_model(groups["own"], weight=1.0, timeout_s=60)
    scoring = model.open()
    add(scoring, rows_of(3))
    assert len(ray.wait(list(scoring._answers), timeout=30)[0]) == 1
    np.testing.assert_allclose(scores_of(scoring).score, reference(config, rows_of(3)), atol=1e-5)


def test_a_full_round_starts_at_once(reward_model: WorkerGroup) -> None:
    model = separate_reward_model(reward_model, weight=1.0, timeout_s=60)
    scoring = model.open()
    add(scoring, rows_of(2))
    assert not scoring._answers, "the ranks work together only, and one has no block yet"
    add(scoring, rows_of(2))
    assert len(ray.wait(list(scoring._answers), num_returns=2, timeout=30)[0]) == 2


def test_the_ranks_stay_in_step_where_a_step_is_dropped_and_others_are_open_at_once(
    reward_model: WorkerGroup, config: Config
) -> None:
    model = separate_reward_model(reward_model, weight=1.0, timeout_s=60)
    begin(model, *[rows_of(2, seed=number) for number in range(3)])  # and dropped
    first = begin(model, rows_of(3, seed=7))
    second = begin(model, rows_of(2, seed=8), rows_of(1, seed=9))
    found = scores_of(second).score
    np.testing.assert_allclose(
        found, [*reference(config, rows_of(2, seed=8)), *reference(config, rows_of(1, seed=9))], atol=1e-5
    )
    np.testing.assert_allclose(scores_of(first).score, reference(config, rows_of(3, seed=7)), atol=1e-5)


def test_ctrl_c_ends_the_wait(reward_model: WorkerGroup) -> None:
    model = separate_reward_model(reward_model, weight=1.0, timeout_s=60)
    scoring = begin(model, rows_of(2))
    current(Interrupt).set()
    try:
        with pytest.raises(Interrupted, match="model"):
            scores_of(scoring)
    finally:
        current(Interrupt).clear()


def test_a_tensor_parallel_judge_on_vllm_gives_the_verdicts_of_transformers(
    groups: dict[str, WorkerGroup], config: Config
) -> None:
    folders = {"policy": Path(config.model.path)}
    model = judge(groups["judge"], weight=1.0, tensor_parallel_size=2, timeout_s=60)
    rows = sums(6)
    rows[4] = ("1+" * 30, "2", "4", {"level": "easy"})
    scoring = model.open()
    for part in (rows[:2], rows[2:]):
        scoring.begin({}, ray.put(block_of(folders, part)))
    found = scores_of(scoring)
    assert "the question to the judge has 69 tokens" in messages(found)[4]
    digits = 0
    for row in (0, 1, 2, 3, 5):
        prompt, response, ground_truth, extra = rows[row]
        verdict, _ = greedy(Path(config.reward.judge.path), f"{prompt}{response},{ground_truth},{extra['level']}?")
        assert found.details[row] == {"judge_verdict": verdict}
        digits += not np.isnan(found.score[row])
        assert np.isnan(found.score[row]) == bool(messages(found)[row]) != any(map(str.isdigit, verdict))
    assert digits > 0


def slow(group: WorkerGroup, *delays_s: float, timeout_s: float) -> SeparateScoring:
    """A judge with blocks under way that take these times and score them."""
    model = SeparateModel(
        group, SlowRole.score, name="judge", weight=1.0, ranks_per_engine=1, is_collective=False, timeout_s=timeout_s
    )
    scoring = model.open()
    for delay_s in delays_s:
        scoring.begin({}, ray.put(DataProto({"delay_s": [delay_s]})))
    return scoring


def test_engines_work_side_by_side_and_a_deadline_or_a_death_is_reported_with_the_name(ray_cluster: None) -> None:
    group = WorkerGroup("judge", world_size=2, placement=None, env={"PYTHONPATH": str(ROOT)}, timeout_s=60)
    group.build("tests.ray.test_scorer_groups:build_slow", lambda rank: (), timeout_s=60)
    group.wait_built(timeout_s=60)
    found = slow(group, 1.8, 0.6, 0.4, 0.8, timeout_s=10).scores()
    assert found.score.tolist() == pytest.approx([1.8, 0.6, 0.4, 0.8])
    engines = [details["pid"] for details in found.details]
    assert engines == [engines[0], engines[1]] * 2 and engines[0] != engines[1]
    assert found.details[1]["end"] < found.details[0]["end"], "0.6 s on one engine, while 1.8 s pass on the other"
    assert found.details[3]["begin"] < found.details[0]["end"], "an engine does not wait for the other's first block"
    for first, next_of_engine in ((0, 2), (1, 3)):
        assert found.details[first]["end"] <= found.details[next_of_engine]["begin"], (
            "an engine has one block at a time"
        )
    with pytest.raises(StageTimeout, match=r"stage 'judge' took longer than 1 s; still waiting for judge rank 1\."):
        slow(group, 0.0, 30.0, 0.0, timeout_s=1).scores()
    scoring = slow(group, 0.0, 0.0, timeout_s=30)
    group.shut_down()
    with pytest.raises(WorkerError, match=r"stage 'judge' failed(.|\n)*judge rank 1 died"):
        scoring.scores()


class SlowRole:
    @dispatch(Dispatch.BROADCAST)
    def score(self, block: DataProto) -> Scores:
        [delay_s] = block["delay_s"]
        begin = time.monotonic()  # one clock for all processes of a machine
        time.sleep(delay_s)
        return Scores.of_model([delay_s], [""], [{"pid": os.getpid(), "begin": begin, "end": time.monotonic()}])


def build_slow() -> dict[str, SlowRole]:
    return {"SlowRole": SlowRole()}
