"""The environment's reward as a component of the score."""

from __future__ import annotations

from typing import cast

import numpy as np

from verl_like.config.schema import Config
from verl_like.controller.remote_batch import BlockRef
from verl_like.reward.scores import Scores
from verl_like.training.environment_reward import environment_reward

BLOCK = cast("BlockRef", None)


def scores(config: Config, rewards: list[float], status: list[str]) -> Scores:
    model = environment_reward(config)
    assert model is not None
    scoring = model.open()
    facts = {
        "environment_reward": np.array(rewards),
        "environment_status": np.array(status),
        "environment_failure": np.array(["" if each == "ok" else f"was {each}" for each in status]),
    }
    scoring.begin(facts, BLOCK)
    return scoring.scores()


def used() -> Config:
    config = Config()
    config.environment.path = "game.py:Game"
    return config


def test_a_run_without_environment_has_no_such_scorer() -> None:
    assert environment_reward(Config()) is None and Config().scoring.function == ""


def test_a_failure_is_no_zero_and_keeps_its_reason() -> None:
    found = scores(used(), [1.0, np.nan, np.nan], ["ok", "timeout", "junk"])
    assert found.score[0] == 1.0 and np.isnan(found.score[1:]).all()
    assert [each and (each.status, each.message) for each in found.failure] == [
        None,
        ("timeout", "was timeout"),
        ("error", "was junk"),
    ]


def test_an_environment_that_alone_scores_must_give_a_reward() -> None:
    [failure] = scores(used(), [np.nan], ["ok"]).failure
    assert failure.status == "error" and "set reward.function" in failure.message


def test_if_a_function_scores_too_no_reward_counts_zero() -> None:
    config = used()
    config.reward.function = "exact_match"
    found = scores(config, [np.nan, 2.0], ["ok", "ok"])
    assert found.score.tolist() == [0.0, 2.0] and list(found.failure) == [None, None]


def test_tools_leave_the_score_to_the_function_of_the_data_source() -> None:
    config = Config()
    config.environment.tools = "tools.py"
    assert config.scoring.function == "" and scores(config, [np.nan], ["ok"]).score.tolist() == [0.0]
