"""Types of the messages between a scorer process and its parent."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from verl_like.config.schema import RewardConfig
from verl_like.reward.specs import FunctionSpec, function_specs

# Past its deadline; the process died; over its memory limit; the function raised or returned no score.
FAILURES = ("timeout", "crash", "memory", "error")
# Result of a grader's read_truth for a ground truth: no function of the row has one; it is compared by value; it is
# compared only as text; it cannot be compared, so that no response to the row can be scored.
NOT_READ, COMPARED_AS_VALUE, COMPARED_AS_TEXT, UNREADABLE = "not read", "value", "text", "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Task of a scorer process: the functions, and the limits of each sample."""

    functions: tuple[FunctionSpec, ...]
    timeout_s: float
    max_memory_gib: float
    max_concurrency: int


def scorer_task(config: RewardConfig) -> Task:
    """Return the task of each scorer process according to the configuration."""
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


# Sample, Outcome and Answer are not frozen, because they are created for every sample, some of them several times: a
# frozen dataclass takes three times as long to create. Sample takes positional arguments, for __reduce__.
@dataclass(slots=True)
class Sample:
    """One response with everything that a reward function may take as an argument."""

    response: str  # without special tokens
    prompt: str  # as the chat template rendered it
    messages: Any  # the prompt as the row has it: a chat list or a string
    data_source: str
    ground_truth: Any
    extra_info: Mapping[str, Any]
    columns: Mapping[str, Any]  # the row's other columns
    response_ids: array[int]  # int32
    # Of an episode with an environment: {"prompt": chat, "completion": chat, "environment": attributes}. The completion
    # consists of turns and what answered them, and the attributes are those of the environment's object.
    episode: Mapping[str, Any] | None = None

    def __reduce__(self) -> tuple[object, ...]:  # several times as quick as the default, which sends the fields' names
        return Sample, _fields(self)


_fields = attrgetter(*Sample.__slots__)


@dataclass(slots=True)
class Outcome:
    """Outcome of one sample. ``score`` is None unless ``status`` is ok."""

    status: str  # "ok", or one of FAILURES
    score: float | None
    details: dict[str, float | str]  # reported by the function in addition to the score
    message: str  # why there is no score, or why the sample was scored alone; otherwise empty
    seconds: float


@dataclass(slots=True)
class Answer:
    """The outcome of one sample, by its position in the request.

    Position -1 stands for all samples of the request: a batch call failed, and the sample at fault is unknown.
    """

    request: int  # the number of the request that it belongs to
    position: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RowGroundTruth:
    """The ground truth of a row, and its data source."""

    data_source: str
    ground_truth: Any


@dataclass(frozen=True, slots=True)
class ReadGroundTruths:
    """A request to read these ground truths; it is answered by :class:`GroundTruthsRead`, in the same sequence."""

    ground_truths: Sequence[RowGroundTruth]


@dataclass(frozen=True, slots=True)
class GroundTruthReading:
    """Whether a ground truth can be compared with responses."""

    status: str  # one of the four above
    reason: str  # why it is compared only as text, or cannot be compared; otherwise empty


@dataclass(frozen=True, slots=True)
class GroundTruthsRead:
    """The readings of some ground truths of a request, in its sequence."""

    request: int
    readings: list[GroundTruthReading]


@dataclass(frozen=True, slots=True)
class Ended:
    """A subreaper's final message: how its scorer process ended, and the output of that and its descendants."""

    code: int  # exit code, or minus the signal that killed it
    num_printed: int  # bytes
    num_passed_on: int  # of them
    last_output: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The connection has ended without a final message."""


@dataclass(frozen=True, slots=True)
class Intrusion:
    """Something arrived that the scorer process would not have written."""

    what: str


Message = Ready | Unusable | Answer | GroundTruthsRead | Ended | Gone | Intrusion
