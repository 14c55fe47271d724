"""Convert the return value of a reward function to scores and details."""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from verl_like.config.user_code import clipped, plain_text, safe_error_text
from verl_like.masking import masked_text
from verl_like.reward.scorer_messages import Outcome

Details = dict[str, float | str]
SCORE_KEYS = ("score", "overall")  # verl's and EasyR1's
MAX_SCORE = 3.4e38  # largest float32, the type of stored scores
MAX_DETAILS = 1000  # entries in addition to a score
MAX_DETAIL_CHARS = 10_000  # of one text among them
MAX_DETAILS_CHARS = 100_000  # of all of them together, including names
MAX_NAME_CHARS = 200

# Types of nearly all values; the checks for the abstract types take ten times as long.
_PLAIN = frozenset({bool, int, float, str, dict, list, type(None)})
_NUMBERS = (float, int, numbers.Real)  # isinstance tries them in this order


def check_result(value: Any) -> tuple[float, Details]:
    """Convert the return value for one sample to a finite score and details.

    A number (also bool, and numbers of torch and numpy) or a dict with ``score`` or ``overall`` is accepted. Other
    entries of the dict are kept as details: numbers as floats, anything else as text, which is clipped.

    Raises:
        ValueError: for any other value, such as None, text, NaN or infinity, and for too many details.
        BaseException: whatever the methods of a value raise.
    """
    value = _plain(value)
    if not isinstance(value, (dict, Mapping)):
        return _score(value, "it"), {}
    key = next((key for key in SCORE_KEYS if key in value), None)
    if key is None:
        raise ValueError(
            f"the reward function returned a dict with {sorted(map(str, value))}; expected the key 'score' among them."
        )
    score = _score(value[key], f"its {key}")
    if len(value) > MAX_DETAILS + 1:
        raise ValueError(
            f"the reward function returned a dict with {len(value)} entries; at most {MAX_DETAILS} are kept in "
            f"addition to the {key}."
        )
    # A slash separates the parts of a metric's name.
    details = {
        clipped(plain_text(name).replace("/", "_"), MAX_NAME_CHARS): _detail(item)
        for name, item in value.items()
        if name != key
    }
    check_size(details)
    return score, details


def check_size(details: Details) -> None:
    """Refuse details that are too large for metrics and samples files.

    Raises:
        ValueError: too much text.
    """
    num_chars = sum(map(len, details)) + sum([len(item) for item in details.values() if isinstance(item, str)])
    if num_chars > MAX_DETAILS_CHARS:
        raise ValueError(
            f"the reward function returned {num_chars} characters in addition to the score; at most "
            f"{MAX_DETAILS_CHARS} are kept. Return less, or write the text to a separate file."
        )


def split_results(value: Any, count: int) -> list[Any]:
    """Split the return value of a batch function into one value per sample.

    A list (or tuple, array, tensor) of values as in :func:`check_result` is accepted, or OpenRLHF's dict of lists,
    ``{"rewards": ..., "scores": ..., "extra_logs": {...}}``.

    Raises:
        ValueError: for any other value, and for a list of another length.
    """
    value = _plain(value)
    if isinstance(value, Mapping) and "rewards" in value:
        logs = {**value.get("extra_logs", {}), **({"scores": value["scores"]} if "scores" in value else {})}
        columns = {
            name: _list(column, count, f"its {name}") for name, column in {**logs, "score": value["rewards"]}.items()
        }
        return [{name: column[i] for name, column in columns.items()} for i in range(count)]
    return _list(value, count, "it")


def failed(error: BaseException, started: float) -> Outcome:
    """Return the outcome of a sample whose function raised; ``started`` is of ``time.perf_counter``."""
    status = "memory" if issubclass(type(error), MemoryError) else "error"
    return Outcome(status, None, {}, masked_text(safe_error_text(error)), time.perf_counter() - started)


def _list(value: Any, count: int, subject: str) -> list[Any]:
    value = _plain(value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(
            f"the reward function returned {_shown(value)} for {count} samples; {subject} must be a list with one "
            "value per sample, in the samples' order."
        )
    if len(value) != count:
        raise ValueError(
            f"the reward function returned a list of length {len(value)} for {count} samples; {subject} must have one "
            "value per sample, in the samples' order."
        )
    return list(value)


def _score(value: Any, subject: str) -> float:
    value = _plain(value)
    if not isinstance(value, _NUMBERS):
        raise ValueError(
            f"the reward function returned {_shown(value)} where {subject} must be a number; expected a number, or a "
            "dict with a number under 'score'."
        )
    try:
        score = float(value)
    except OverflowError:  # an integer or fraction of a few hundred digits
        score = math.inf
    if not math.isfinite(score):
        raise ValueError(f"the reward function returned {score}; {subject} must be a finite number.")
    if abs(score) > MAX_SCORE:
        raise ValueError(f"the reward function returned {score}; {subject} must be at most {MAX_SCORE:g} in size.")
    return score


def _detail(value: Any) -> float | str:
    value = _plain(value)
    if type(value) is not str and isinstance(value, _NUMBERS):  # Real makes isinstance slow for text
        try:
            return float(value)
        except OverflowError:
            if isinstance(value, int):  # Python refuses to convert integers with too many digits to text
                return f"an integer of {int.bit_length(value)} bits"
    text = plain_text(value)
    if len(text) <= MAX_DETAIL_CHARS:
        return text
    # Texts that differ only in the clipped part must stay distinct: votes are counted by such a detail.
    mark = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{clipped(text, MAX_DETAIL_CHARS)} [{mark}]"


def _shown(value: Any) -> str:
    try:
        return f"{plain_text(repr(value)):.80} ({type(value).__name__})"
    except Exception:  # noqa: BLE001 (the value may be of a user's class)
        return f"a {type(value).__name__} whose repr() raises"


def _plain(value: Any) -> Any:
    """Convert tensors and arrays to Python numbers and lists. By type name: importing torch would slow every scorer."""
    if type(value) in _PLAIN:
        return value
    has_list = type(value).__module__.partition(".")[0] in ("torch", "numpy") and hasattr(value, "tolist")
    return value.tolist() if has_list else value
