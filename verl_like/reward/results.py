"""From what a reward function returned to scores and details."""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Mapping, Sequence
from typing import Any

from verl_like.config.user_code import told
from verl_like.reward.messages import Outcome

Details = dict[str, float | str]
SCORE_KEYS = ("score", "overall")  # verl's and EasyR1's


def check_result(value: Any) -> tuple[float, Details]:
    """What a reward function returned for one sample, as a finite score and details.

    Takes a number (true and false count as 1 and 0; of torch and numpy too) or a dict with ``score`` or ``overall``.
    Other entries of the dict are kept: numbers as floats, anything else as text.

    Raises:
        ValueError: for anything else, among it None, text, NaN and infinity.
    """
    value = _plain(value)
    if not isinstance(value, Mapping):
        return _score(value, "it"), {}
    key = next((key for key in SCORE_KEYS if key in value), None)
    if key is None:
        raise ValueError(
            f"the reward function returned a dict with {sorted(map(str, value))}; expected the key 'score' among them."
        )
    # A slash separates the parts of a metric's name.
    return _score(value[key], f"its {key}"), {
        str(name).replace("/", "_"): _detail(item) for name, item in value.items() if name != key
    }


def split_results(value: Any, count: int) -> list[Any]:
    """What a function of a batch form returned, as one value per sample.

    Takes a list (or tuple, array, tensor) of values as in :func:`check_result`, or OpenRLHF's dict of lists,
    ``{"rewards": ..., "scores": ..., "extra_logs": {...}}``.

    Raises:
        ValueError: for anything else, and for a list of another length.
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
    """The outcome of a sample whose function raised; ``started`` is of ``time.perf_counter``."""
    status = "memory" if isinstance(error, MemoryError) else "error"
    return Outcome(status, None, {}, told(error), time.perf_counter() - started)


def _list(value: Any, count: int, subject: str) -> list[Any]:
    value = _plain(value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(
            f"the reward function returned {_shown(value)} for {count} samples; {subject} must be a list with one "
            f"value per "
            "sample, in their order."
        )
    if len(value) != count:
        raise ValueError(
            f"the reward function returned a list of length {len(value)} for {count} samples; {subject} must have one "
            f"value "
            "per sample, in their order."
        )
    return list(value)


def _score(value: Any, subject: str) -> float:
    if not isinstance(value, numbers.Real):
        raise ValueError(
            f"the reward function returned {_shown(value)} where {subject} must be a number; expected a number, or a "
            f"dict "
            "with a number under 'score'."
        )
    score = float(value)
    if not math.isfinite(score):
        raise ValueError(f"the reward function returned {score}; {subject} must be a finite number.")
    return score


def _detail(value: Any) -> float | str:
    value = _plain(value)
    return float(value) if isinstance(value, numbers.Real) else str(value)


def _shown(value: Any) -> str:
    return f"{value!r:.80} ({type(value).__name__})"


def _plain(value: Any) -> Any:
    """Tensors and arrays as Python numbers and lists. By name: importing torch would make every scorer heavy."""
    return value.tolist() if type(value).__module__.partition(".")[0] in ("torch", "numpy") else value
