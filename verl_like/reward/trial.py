"""The reward functions are tried before a run starts: what is wrong with them shows before a model has loaded."""

from __future__ import annotations

from collections.abc import Mapping

from verl_like.config.schema import RewardConfig
from verl_like.reward.messages import Sample, scorer_task
from verl_like.reward.team import ScorerTeam


def try_reward(config: RewardConfig, samples: Mapping[str, Sample]) -> None:
    """Load the reward functions and, where ``reward.try_first``, score these samples.

    It happens in a process of its own, never in the caller's.

    Args:
        samples: one for each data source, by the name of its prompt.

    Raises:
        ValueError: a function that cannot be loaded or called, or that gives a sample no score.
    """
    task = scorer_task(config)
    if not task.functions:
        return
    names = ", ".join(f"{spec.knob}={spec.function or '(by data_source)'}" for spec in task.functions)
    try:
        with ScorerTeam(task, num_processes=1) as scorer:
            _try_each(scorer, samples if config.try_first else {}, names)
    except RuntimeError as error:  # the process died or hung; only the functions can be the reason
        raise ValueError(f"{names} cannot be used: {error}") from error


def _try_each(scorer: ScorerTeam, samples: Mapping[str, Sample], names: str) -> None:
    for prompt, sample in samples.items():
        # As a batch of two and alone: a list of a fixed length would pass for one of them.
        for outcome in (*scorer.score([sample, sample]), *scorer.score([sample])):
            if outcome.status != "ok" or outcome.message:
                kind = "as a batch" if outcome.status == "ok" else outcome.status
                raise ValueError(
                    f"{names} was tried on prompt {prompt} (data_source {sample.data_source!r}) with the ground truth "
                    f"as response, and "
                    f"failed ({kind}):\n{outcome.message}\nCorrect the function, or the row; a response "
                    f"that is wrong or "
                    "malformed should score low, not raise. reward.try_first=false skips this trial."
                )
