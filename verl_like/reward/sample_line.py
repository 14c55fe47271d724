"""One line of a samples file: a response with everything that a reader, another reward function or a report needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verl_like.protocol import Array
from verl_like.reward.failure_limit import Failure
from verl_like.reward.scorer_messages import Sample

# Columns of the response's tokens that are written, those that the step has.
TOKEN_COLUMNS = ("response_mask", "rollout_log_probs", "old_log_probs", "entropy", "advantages", "weight_version")
TURN_COLUMNS = {"turn_index": "index", "turn_tokens": "tokens", "turn_rewards": "reward"}  # and their names in a line
DIGITS = 6  # significant ones of a token's value


def context_of(
    sample: Sample, *, prompt_ids: list[int], tokens: Mapping[str, Any] | None, turns: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Return what a line has of one row: the chat of an episode, its turns, and the tokens.

    Args:
        tokens: texts and columns of the response's tokens; None leaves them out.
        turns: columns of the turns that the row is learned from; none if the sample is no episode.
    """
    found = [dict(zip(turns, values, strict=True)) for values in zip(*turns.values(), strict=True)]
    return {
        **({} if sample.episode is None else {"episode": sample.episode}),
        **({"turns": found} if turns else {}),
        "prompt_ids": prompt_ids,
        "response_ids": sample.response_ids.tolist(),
        **({} if tokens is None else {"tokens": dict(tokens)}),
    }


def sample_line(
    sample: Sample, of_row: Mapping[str, Any], context: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return one line of a samples file: prompt, response, score and details.

    It contains everything needed to score the response with another function, and to compute its log-probs.

    Args:
        of_row: values of the response's row by name; "failure" is None or a Failure.
        context: of that row.
        earlier: contexts of the episode's earlier rows, whose history was rewritten.
    """
    known = {name: _known(value) for name, value in of_row.items()}
    failure: Failure | None = known.pop("failure", None)
    return {
        "prompt": sample.prompt,
        "response": sample.response,
        "ground_truth": sample.ground_truth,
        "score": known.pop("score", None),
        "components": {name: _jsonable(value) for name, value in known.pop("details", {}).items()},
        "seconds": known.pop("reward_seconds", None),
        "failure": f"{failure.status}: {failure.message}" if failure is not None else None,
        **known,
        "data_source": sample.data_source,
        "extra_info": sample.extra_info,
        "messages": sample.messages,
        "columns": sample.columns,
        **context,
        **({"earlier_contexts": list(earlier)} if earlier else {}),
    }


def token_values(values: Array) -> list[float | None]:
    """Return the values of a row's tokens with a few digits; None for one that is not finite, which JSON lacks."""
    if values.dtype.kind != "f":
        numbers: list[float | None] = values.astype(np.int64).tolist()
        return numbers
    return [float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]


def _known(value: Any) -> Any:
    """Return a Python value; None for NaN, which JSON lacks: the score of a sample that failed."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and np.isnan(value) else value


def _jsonable(value: float | str) -> float | str:
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
