"""When failed samples end a run, and what is reported of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from verl_like.config.schema import RewardConfig
from verl_like.config.user_code import clipped
from verl_like.controller.errors import FeedbackError
from verl_like.protocol import Array
from verl_like.reward.specs import function_names, function_specs

NUM_SHOWN = 3
NUM_CHARS = 300  # of each text in a message


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample without a score, in words for a message: light enough for the driver."""

    status: str
    message: str
    prompt: str  # this and the response are empty where a model failed
    response: str

    @property
    def reason(self) -> str:
        return f"[{self.status}] {self.message}"

    @property
    def texts(self) -> str:
        return f"\n  prompt: {self.prompt!r}\n  response: {self.response!r}" if self.prompt else ""


def clipped_failure(status: str, message: str, prompt: str, response: str) -> Failure:
    """A failure whose texts are short; longer ones are in ``reward_failures.jsonl``."""
    return Failure(status, clipped(message, 3 * NUM_CHARS), clipped(prompt, NUM_CHARS), clipped(response, NUM_CHARS))


def value_of_failure(config: RewardConfig) -> float:
    """Return what a sample without a score is worth: NaN (left out) unless ``reward.on_failure=score:<x>``."""
    kind, _, number = config.on_failure.partition(":")
    return float(number) if kind == "score" else float("nan")


def check_failures(failures: Sequence[Failure], num_samples: int, config: RewardConfig) -> None:
    """Refuse to go on where too many samples have no score.

    Args:
        failures: so far, of ``num_samples`` in all.

    Raises:
        FeedbackError: more than ``reward.max_failure_frac`` failed, all failed, or one with
            ``reward.on_failure=abort``; some are shown.
    """
    if not failures:
        return
    if config.on_failure == "abort":
        limit = "reward.on_failure is abort"
    elif len(failures) == num_samples:
        limit = "nothing is left"
    elif len(failures) > config.max_failure_frac * num_samples:
        limit = f"reward.max_failure_frac is {config.max_failure_frac:g}"
    else:
        return
    raise FeedbackError(
        f"{len(failures)} of {num_samples} responses have no score ({_by_kind(f.status for f in failures)}), and "
        f"{limit}."
        f"{_shown(failures)}"
    )


def too_slow(config: RewardConfig, *, num_scored: int, num_rows: int) -> str:
    """What to report of reward functions that are too slow for a stage, beside whom it waited for."""
    return (
        f"{function_names(function_specs(config))} has scored {num_scored} of {num_rows} responses in that time, "
        f"counted by blocks. Where each takes long but ends within reward.timeout_s={config.timeout_s:g}, raise "
        f"reward.num_workers (now {config.num_workers}) or trainer.stage_timeout_s; reward/seconds_max of past steps "
        "has the longest."
    )


def _shown(failures: Sequence[Failure]) -> str:
    texts: dict[str, str] = {}  # by reason, which most failures share: each is reported once
    for failure in failures[:NUM_SHOWN]:
        texts[failure.reason] = texts.get(failure.reason, "") + failure.texts
    shown = "\n".join(reason + of_samples for reason, of_samples in texts.items())
    return (
        f" The first {min(len(failures), NUM_SHOWN)}:\n{shown}\nreward_failures.jsonl in the run folder has each one "
        f"whole. Correct "
        "the reward function; raise reward.timeout_s where they are timeouts, reward.max_memory_gib where it is memory."
    )


def _by_kind(statuses: Iterable[str]) -> str:
    kinds, counts = np.unique(list(statuses), return_counts=True)
    return ", ".join(f"{count} {kind}" for kind, count in zip(kinds, counts, strict=True))


def failures_of(failure: Array) -> list[Failure]:
    """The failures among the entries, which are None for samples with a score."""
    return [each for each in failure if each is not None]
