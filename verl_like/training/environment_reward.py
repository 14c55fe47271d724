"""The rewards that environments give, as one more scorer: they arrive with the episodes, as facts."""

from __future__ import annotations

import numpy as np

from verl_like.config.schema import Config
from verl_like.config.schema.reward import ENVIRONMENT
from verl_like.controller.remote_batch import BlockRef, Facts
from verl_like.protocol import last_rows
from verl_like.reward.failure_limit import Failure
from verl_like.reward.scores import Scores, objects

FACTS = ("environment_reward", "environment_status", "environment_failure")
_STATUS = {"junk": "error"}  # how a failure of an environment is counted among the failures of scorers
_NO_REWARD = (
    "the episode has ended without a reward, and no function gives one. Return a reward from step or "
    "get_reward, or set reward.function."
)


class EnvironmentReward:
    """The environment's reward as a component of the score.

    Args:
        is_alone: whether nothing else scores, so that an episode without a reward has no score; otherwise it counts 0.
    """

    name = "environment"
    option = "environment"

    def __init__(self, *, weight: float, is_alone: bool) -> None:
        self.weight, self._is_alone = weight, is_alone

    def open(self) -> EnvironmentScoring:
        """Start the scores of another step."""
        return EnvironmentScoring(is_alone=self._is_alone)


class EnvironmentScoring:
    """The episodes' rewards of one step."""

    def __init__(self, *, is_alone: bool) -> None:
        self._is_alone = is_alone
        self._begun: list[Facts] = []

    def begin(self, facts: Facts, block: BlockRef) -> None:
        """Keep the rewards of a block, one of each episode."""
        rows = last_rows(facts)
        self._begun.append({name: facts[name][rows] for name in FACTS})

    def finish(self) -> None:
        """Do nothing: no reward is outstanding."""

    def scores(self) -> Scores:
        """Return the rewards of all episodes begun since the last call, in the order of :meth:`begin`."""
        begun, self._begun = self._begun, []
        return Scores.concat([self._of_block(facts) for facts in begun])

    def _of_block(self, facts: Facts) -> Scores:
        reward, status = facts["environment_reward"].astype(np.float32), facts["environment_status"]
        is_ok = status == "ok"
        failure = [
            None if each == "ok" else Failure(_STATUS.get(str(each), str(each)), str(text), "", "")
            for each, text in zip(status, facts["environment_failure"], strict=True)
        ]
        is_missing = is_ok & np.isnan(reward)
        if self._is_alone:
            failure = [
                Failure("error", _NO_REWARD, "", "") if missing else each
                for missing, each in zip(is_missing, failure, strict=True)
            ]
        else:
            reward = np.where(is_missing, np.float32(0), reward)
        rows = len(reward)
        return Scores(
            score=np.where(is_ok, reward, np.float32(np.nan)),
            failure=objects(failure),
            details=objects([{} for _ in range(rows)]),
            answer=np.full(rows, ""),
            seconds=np.zeros(rows, np.float32),
            was_alone=np.zeros(rows, bool),
        )


def environment_reward(config: Config) -> EnvironmentReward | None:
    """Return the scorer of environments; None if the run has none."""
    if not config.environment.is_used:
        return None
    return EnvironmentReward(weight=config.environment.reward_weight, is_alone=config.scoring.function == ENVIRONMENT)
