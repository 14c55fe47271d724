"""What travels between a scorer process and its parent."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_like.config.schema import RewardConfig
from verl_like.reward.specs import FunctionSpec, function_specs

# Past its deadline; the process died; over its memory limit; the function raised or returned no score.
FAILURES = ("timeout", "crash", "memory", "error")
# What a grader's read_truth says of a truth: no function of the row has one; it is compared as what it is; only as
# text; with nothing, so that no response to the row can be scored.
NOT_ASKED, COMPARED_AS_VALUE, COMPARED_AS_TEXT, UNREADABLE = "not asked", "value", "text", "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a scorer process is started for: the functions, and the limits of each sample."""

    functions: tuple[FunctionSpec, ...]
    timeout_s: float
    max_memory_gib: float
    max_concurrency: int


def scorer_task(config: RewardConfig) -> Task:
    """What the configuration asks of each scorer process."""
    return Task(
        functions=function_specs(config),
        timeout_s=config.timeout_s,
        max_memory_gib=config.max_memory_gib,
        max_concurrency=config.max_concurrency,
    )


@dataclass(frozen=True, slots=True)
class Ready:
    """The greeting of a process whose functions are loaded."""

    mode: str  # of Scoring


@dataclass(frozen=True, slots=True)
class Unusable:
    """The greeting of a process whose functions cannot be used."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One response with everything a reward function may ask for."""

    response: str  # without special tokens
    prompt: str  # as the chat template rendered it
    messages: Any  # the prompt as the row has it: a chat list or a string
    data_source: str
    ground_truth: Any
    extra_info: Mapping[str, Any]
    columns: Mapping[str, Any]  # the row's other columns
    response_ids: array[int]  # int32


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one sample. ``score`` is None unless ``status`` is ok."""

    status: str  # "ok", or one of FAILURES
    score: float | None
    details: dict[str, float | str]  # what the function reported beside the score
    message: str  # why there is no score, or why it was scored alone; else empty
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one sample, by its position among those that were sent.

    Position -1 stands for all that were sent: a call for many failed, and nobody knows which of them spoiled it.
    """

    request: int  # the number of the request that it belongs to
    position: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RowTruth:
    """What the responses to a row are compared with."""

    data_source: str
    ground_truth: Any


@dataclass(frozen=True, slots=True)
class ReadTruths:
    """The request to read these truths; the answers are :class:`TruthsRead`, in their order."""

    truths: Sequence[RowTruth]


@dataclass(frozen=True, slots=True)
class TruthReading:
    """Whether a truth can be compared with responses."""

    status: str  # one of the four above
    reason: str  # why only as text, or with nothing; else empty


@dataclass(frozen=True, slots=True)
class TruthsRead:
    """The readings of some truths of a request, in order."""

    request: int
    readings: list[TruthReading]


@dataclass(frozen=True, slots=True)
class Ended:
    """The last word of a subreaper: how its scorer process ended, and what that and its descendants printed."""

    code: int  # exit code, or minus the signal that killed it
    num_printed: int  # bytes
    num_passed_on: int  # of them
    last_words: str


@dataclass(frozen=True, slots=True)
class Gone:
    """Nobody is left to answer, nor to say why."""


@dataclass(frozen=True, slots=True)
class Intrusion:
    """Something arrived that the scorer process would not have written."""

    what: str


Message = Ready | Unusable | Answer | TruthsRead | Ended | Gone | Intrusion
