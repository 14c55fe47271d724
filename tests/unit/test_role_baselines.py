"""Baselines of roles: the paper's equations in float64, no effect of row order, and the state between steps."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from verl_like.algorithms.role_baselines import moved_baselines, role_means
from verl_like.config.schema import AlgorithmConfig
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.data.prompts import Prompt
from verl_like.data.row_names import RowNames, row_role
from verl_like.training.progress import Steering
from verl_like.training.role_rewards import with_role_baselines
from verl_like.training.score_advantages import score_advantages
from verl_like.training.step_metrics import StepMetrics
from verl_like.training.step_state import StepState
from verl_like.workers.messages import RowRewards

RAE = AlgorithmConfig(adv_estimator="rae", rae_role_key="player")


def prompt(uid: str, **columns: Any) -> Prompt:
    return Prompt(
        prompt_ids=np.zeros(1, np.int32),
        uid=uid,
        text="",
        data_source="kuhn",
        ground_truth=None,
        extra_info={},
        messages="",
        columns=columns,
    )


class Added(StepMetrics):
    """Keeps what is added."""

    def __init__(self) -> None:
        super().__init__()
        self.added: dict[str, float] = {}

    def add(self, values: Mapping[str, float]) -> None:
        self.added.update(values)


def step(
    steering: Steering, players: list[object], rewards: list[float], *, episodes: list[int] | None = None
) -> tuple[list[float], Steering, dict[str, float]]:
    """Return the advantages of a step with these responses, the state after it, and its metrics."""
    uids = [f"games:{i}" for i in range(len(players))]
    facts = {"uid": np.array(uids)}
    if episodes is not None:
        facts["episode_row"] = np.array([episodes[:i].count(episode) for i, episode in enumerate(episodes)])
    metrics = Added()
    state = StepState(step=1, version=0, steering=steering, scores=None, metrics=metrics)  # type: ignore[arg-type]
    earned = RowRewards(
        rewards=np.array(rewards, np.float32),
        group_ids=np.arange(len(players)) if episodes is None else np.array(episodes),
        episodes=None if episodes is None else np.array(episodes),
    )
    prompts = [prompt(uid, player=player) for uid, player in zip(uids, players, strict=True)]
    roles = RowNames(prompts, partial(row_role, key="player"))
    earned = with_role_baselines(earned, RemoteBatch(facts), state, roles, decay=RAE.rae_decay)
    found, _ = score_advantages(earned, np.ones(len(players), np.int64), RAE)
    after = steering.after({}, RAE, num_responses=len(players), role_means=state.role_means)
    return found["advantage"].tolist(), after, metrics.added


def test_one_game_per_step_is_the_paper_s_update_after_each_game() -> None:
    """2506.24119: b <- alpha b + (1 - alpha) R, then A = R - b, for the role p of the game, alpha = 0.95, b = 0 at
    first.
    """
    rng, alpha = random.Random(0), 0.95
    expected_baselines = {"0": 0.0, "1": 0.0}
    steering = Steering(kl_coef=0.0)
    for _ in range(50):
        reward = np.float32(rng.uniform(-1, 1)).item()
        outcomes = {"0": reward, "1": -reward}
        expected = []
        for player, outcome in outcomes.items():
            expected_baselines[player] = alpha * expected_baselines[player] + (1 - alpha) * outcome
            expected.append(outcome - expected_baselines[player])
        found, steering, metrics = step(steering, [0, 1], list(outcomes.values()))
        assert found == pytest.approx(expected, rel=1e-6)
        assert steering.role_baselines == pytest.approx(expected_baselines, rel=1e-12)
        assert metrics == {f"reward/role_baseline/{name}": value for name, value in steering.role_baselines.items()}


def test_a_step_moves_a_baseline_once_by_the_mean_of_its_role() -> None:
    before = Steering(kl_coef=0.0, role_baselines={"first": 0.5, "absent": 0.3})
    found, after, _ = step(before, ["first", "second", "first"], [1.0, -1.0, 0.0])
    first, second = 0.95 * 0.5 + 0.05 * 0.5, 0.05 * -1.0
    assert after.role_baselines == pytest.approx({"first": first, "second": second, "absent": 0.3})
    assert found == pytest.approx([1 - first, -1 - second, -first])
    assert before.role_baselines == {"first": 0.5, "absent": 0.3}, "a step that fails later leaves the state as it was"


def test_the_order_of_rows_changes_no_bit() -> None:
    rng = random.Random(1)
    rows = [(rng.choice("ab"), rng.uniform(-1, 1) * 10 ** rng.randint(-6, 6)) for _ in range(200)]
    expected = role_means(*zip(*rows, strict=True))
    for _ in range(20):
        rng.shuffle(rows)
        assert role_means(*zip(*rows, strict=True)) == expected


def test_an_episode_counts_once_whatever_the_number_of_its_rows() -> None:
    once, after_once, _ = step(Steering(kl_coef=0.0), ["a", "a"], [1.0, 0.0], episodes=[0, 1])
    forked, after_forked, _ = step(Steering(kl_coef=0.0), ["a"] * 4, [1.0, 1.0, 1.0, 0.0], episodes=[0, 0, 0, 1])
    assert after_forked == after_once and after_once.role_baselines == pytest.approx({"a": 0.05 * 0.5})
    assert forked == [once[0]] * 3 + [once[1]]


def test_without_decay_the_baseline_is_the_mean_of_the_step() -> None:
    assert moved_baselines({"a": 9.0}, {"a": 0.25}, decay=0.0) == {"a": 0.25}


def test_a_checkpoint_brings_the_baselines_back_bit_for_bit() -> None:
    _, state, _ = step(Steering(kl_coef=0.0, role_baselines={"a": 1 / 3}), ["a", 7], [0.1, 0.7])
    restored = Steering(**json.loads(json.dumps(vars(state))))
    assert restored == state
    assert step(restored, ["a", 7], [0.2, 0.3]) == step(state, ["a", 7], [0.2, 0.3])


def test_the_role_of_a_row_is_its_data_source_or_a_column() -> None:
    row = prompt("games:0", player=0, name="first")
    assert [row_role(row, key=name) for name in ("data_source", "player", "name")] == ["kuhn", "0", "first"]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"name": "x"}, "has no column 'player'"),
        ({"player": None}, "has None in the column 'player'"),
        ({"player": ""}, "has '' in the column 'player'"),
        ({"player": True}, "has True in the column 'player'"),
        ({"player": 0.5}, "has 0.5 in the column 'player'"),
    ],
)
def test_a_row_without_a_role_is_refused(columns: dict[str, object], found: str) -> None:
    with pytest.raises(ValueError) as caught:
        row_role(prompt("games.jsonl:3", **columns), key="player")
    assert str(caught.value) == (
        f"games.jsonl:3 {found}; expected text or a whole number, the role whose baseline its responses share. "
        f"Fill the column, or set algorithm.rae_role_key to one of {['data_source', *columns]}."
    )
