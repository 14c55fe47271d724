"""Decide when failed samples end a run, and word the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from verl_like.config.schema import RewardConfig
from verl_like.config.schema.reward import ENVIRONMENT
from verl_like.config.user_code import clipped
from verl_like.controller.errors import FeedbackError
from verl_like.protocol import Array
from verl_like.reward.specs import function_names, function_specs

NUM_SHOWN = 3
NUM_CHARS = 300  # of each text in a message


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample without a score, as text for a message; small enough to keep on the driver."""

    status: str
    message: str
    prompt: str  # empty, like the response, if a model failed
    response: str

    @property
    def reason(self) -> str:
        return f"[{self.status}] {self.message}"

    @property
    def texts(self) -> str:
        return f"\n  prompt: {self.prompt!r}\n  response: {self.response!r}" if self.prompt else ""


def clipped_failure(status: str, message: str, prompt: str, response: str) -> Failure:
    """Return a failure with shortened texts; ``reward_failures.jsonl`` has the full ones."""
    return Failure(status, clipped(message, 3 * NUM_CHARS), clipped(prompt, NUM_CHARS), clipped(response, NUM_CHARS))


def value_of_failure(config: RewardConfig) -> float:
    """Return the score of a failed sample: NaN (left out) unless ``reward.on_failure=score:<x>``."""
    kind, _, number = config.on_failure.partition(":")
    return float(number) if kind == "score" else float("nan")


def check_failures(failures: Sequence[Failure], num_samples: int, config: RewardConfig) -> None:
    """Raise if too many samples have no score.

    Args:
        failures: failures so far, of ``num_samples`` in total.

    Raises:
        FeedbackError: more than ``reward.max_failure_frac`` failed, all failed, or one failed with
            ``reward.on_failure=abort``; the message shows some of them.
    """
    if not failures:
        return
    if config.on_failure == "abort":
        limit = "reward.on_failure is abort"
    elif len(failures) == num_samples:
        limit = "no scored response is left"
    elif len(failures) > config.max_failure_frac * num_samples:
        limit = f"reward.max_failure_frac is {config.max_failure_frac:g}"
    else:
        return
    raise FeedbackError(
        f"{len(failures)} of {num_samples} responses have no score ({_by_kind(f.status for f in failures)}), and "
        f"{limit}.{_shown(failures)}"
    )


def too_slow(config: RewardConfig, *, num_scored: int, num_rows: int) -> str:
    """Return a sentence about reward functions that are too slow for a stage, to append to the stage's timeout."""
    return (
        f"{function_names(function_specs(config))} has scored {num_scored} of {num_rows} responses in that time, "
        f"counted by blocks. If each takes long but ends within reward.timeout_s={config.timeout_s:g}, raise "
        f"reward.num_workers (now {config.num_workers}) or trainer.stage_timeout_s; reward/seconds_max of past steps "
        "is the longest time."
    )


def _shown(failures: Sequence[Failure]) -> str:
    texts: dict[str, str] = {}  # by reason: most failures share one, which is printed once
    for failure in failures[:NUM_SHOWN]:
        texts[failure.reason] = texts.get(failure.reason, "") + failure.texts
    shown = "\n".join(reason + of_samples for reason, of_samples in texts.items())
    if all(failure.message.startswith(f"{ENVIRONMENT}: ") for failure in failures):
        remedy = (
            "Correct the environment; raise environment.call_timeout_s or environment.episode_timeout_s if they are "
            "timeouts, or environment.max_memory_gib if they ran out of memory."
        )
    else:
        remedy = (
            "reward_failures.jsonl in the run folder has all of them in full. Correct the reward function; raise "
            "reward.timeout_s if they are timeouts, or reward.max_memory_gib if they ran out of memory."
        )
    return f" The first {min(len(failures), NUM_SHOWN)}:\n{shown}\n{remedy}"


def _by_kind(statuses: Iterable[str]) -> str:
    kinds, counts = np.unique(list(statuses), return_counts=True)
    return ", ".join(f"{count} {kind}" for kind, count in zip(kinds, counts, strict=True))


def failures_of(failure: Array) -> list[Failure]:
    """Return the failures among the entries, which are None for samples with a score."""
    return [each for each in failure if each is not None]
