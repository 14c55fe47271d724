"""The list of known columns, the three kinds of column, and operations on a single column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from verl_like.protocol.ragged import Ragged
from verl_like.protocol.storage import Array, as_tensor, dtype_name, is_tensor, is_values, joined, same, taken

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PAIR, TEACHER = "pair", "teacher"
PROMPTS = ("prompt_ids", "teacher_prompt_ids")
FEATURES = "features"  # of prompts with pictures
RESPONSE_FEATURES = "response_features"  # of rows with pictures between turns, instead of FEATURES
# Names among the features: a list of encoded pictures, in the order of their tokens. FEATURES has those of the prompt
# under the first name. RESPONSE_FEATURES has those of the response there, and those of the prompt under the second.
PICTURES, PROMPT_PICTURES = "images", "prompt_images"
FEATURE_COLUMNS = frozenset({FEATURES, RESPONSE_FEATURES})  # a table without one has rows without features
EXPERTS = "routed_experts"  # that the engine chose, at all positions of a row but the last, if it reports them
CANDIDATES = ("candidate_ids", "num_candidates")  # of the response tokens, if the engine reports them
_RAGGED = {"turn": "token", "candidate": "token", "expert": "token"}  # kinds of ragged columns, held in the same way
Column: TypeAlias = "Ragged | Array | Tensor | list[Any]"


@dataclass(frozen=True)
class ColumnSpec:
    """Content and producer of a column."""

    kind: str  # "token"; "turn", "candidate" and "expert" (ragged as well, with other entries); "fixed" or "object"
    dtype: str  # or several, joined by "|"
    unit: str
    producer: str


COLUMNS: dict[str, ColumnSpec] = {
    "uid": ColumnSpec("object", "str", "names the prompt in every run", "prompts"),
    "group_id": ColumnSpec("fixed", "int64", "equal for responses to one prompt", "prompts"),
    "prompt_text": ColumnSpec("object", "str", "the rendered prompt", "prompts"),
    "prompt_ids": ColumnSpec("token", "int32", "token ids", "prompts"),
    "teacher_prompt_ids": ColumnSpec(
        "token", "int32", "token ids of the prompt as a privileged teacher sees it", "prompts"
    ),
    "response_ids": ColumnSpec("token", "int32", "token ids", "rollout"),
    "response_mask": ColumnSpec("token", "bool", "true where the policy chose the token", "rollout"),
    "rollout_log_probs": ColumnSpec("token", "float32", "nats, per response token", "rollout"),
    "weight_version": ColumnSpec(
        "token", "int32", "version of the weights that sampled the token, -1 for none", "rollout"
    ),
    # With rollout.keep_sampling_mask only: the tokens that top-k and top-p kept, of one response token after the other.
    "candidate_ids": ColumnSpec("candidate", "int32", "token ids", "rollout"),
    "num_candidates": ColumnSpec("token", "int32", "candidates of the token, 0 for the whole vocabulary", "rollout"),
    # With rollout.router_replay only: [prompt and response tokens - 1, layers, experts per token], flattened.
    EXPERTS: ColumnSpec("expert", "uint8|int16", "numbers of experts", "rollout"),
    # Of episodes with environments only.
    "episode_row": ColumnSpec("fixed", "int32", "index of the row within its episode", "rollout"),
    "turn_index": ColumnSpec("turn", "int32", "number of the turn in its episode", "rollout"),
    "turn_tokens": ColumnSpec("turn", "int32", "sampled tokens that the row is learned from", "rollout"),
    "turn_rewards": ColumnSpec("turn", "float32", "reward from the environment", "rollout"),
    "state_keys": ColumnSpec("turn", "int64", "hash of the state before the turn, -1 for none", "rollout"),
    "old_log_probs": ColumnSpec("token", "float32", "nats, per response token", "old_log_probs"),
    "sum_pi_squared": ColumnSpec(
        "token", "float32", "sum of squared probabilities at the token's position", "old_log_probs"
    ),
    "entropy": ColumnSpec("token", "float32", "nats, at the token's position", "old_log_probs"),
    "ref_log_probs": ColumnSpec("token", "float32", "nats, per response token", "ref_log_probs"),
    "values": ColumnSpec("token", "float32", "reward, per response token", "values"),
    "advantages": ColumnSpec("token", "float32", "reward, per response token", "advantages"),
    "returns": ColumnSpec("token", "float32", "reward, per response token", "advantages"),
    "covariance_rank": ColumnSpec(
        "token", "float32", "share of the mini-batch's tokens with a higher covariance", "advantages"
    ),
    "is_high_entropy": ColumnSpec("token", "bool", "true for the mini-batch's tokens of highest entropy", "advantages"),
    "teacher": ColumnSpec("fixed", "int64", "position in ref.teachers of the one that the row names", "prompts"),
    # Of given preferences only: pairs of responses, or single responses with a label.
    "pair": ColumnSpec("fixed", "int64", "equal for the two responses of a pair", "prompts"),
    "is_chosen": ColumnSpec("fixed", "bool", "true for the preferred or desirable response", "prompts"),
    "margin": ColumnSpec("fixed", "float32", "by how much the preferred response should lead", "prompts"),
    "ref_log_prob": ColumnSpec("fixed", "float32", "nats, of the whole response", "ref_log_probs"),
    "reward_inputs": ColumnSpec("object", "dict", "data_source, ground_truth, extra_info", "prompts"),
    FEATURES: ColumnSpec("object", "dict", "model inputs other than tokens: encoded pictures", "prompts"),
    # Of episodes of a model that reads pictures only; where it is, FEATURES is not read.
    RESPONSE_FEATURES: ColumnSpec("object", "dict", "encoded pictures of the row's response and prompt", "rollout"),
}


def bytes_per_token(names: Iterable[str]) -> int:
    """Return the bytes of these token columns of COLUMNS per token; offsets are per row and not counted."""
    size = 0
    for name in names:
        spec = COLUMNS.get(name)
        if spec is None or spec.kind != "token":
            found = "not in COLUMNS" if spec is None else f"a column of kind {spec.kind}"
            raise ValueError(f"column {name!r} is {found}; expected a token column, one of {token_columns()}.")
        size += np.dtype(spec.dtype).itemsize
    return size


def token_columns() -> list[str]:
    """Return the names of the token columns in COLUMNS."""
    return [name for name, spec in COLUMNS.items() if spec.kind == "token"]


def check_column(name: str, column: Column) -> None:
    """Check that a column named in COLUMNS has its kind and dtype; other names are the user's own.

    Raises:
        ValueError: for another kind or dtype.
    """
    spec = COLUMNS.get(name)
    if spec is not None and (
        kind_of(column) != _RAGGED.get(spec.kind, spec.kind) or dtypes_of(column) not in ("", *spec.dtype.split("|"))
    ):
        article = "an" if spec.kind == "object" else "a"
        raise ValueError(
            f"{described(name, column)}; expected {article} {spec.kind} column of {spec.dtype} ({spec.unit})."
        )


def kind_of(column: Column) -> str:
    """Return ``token``, ``fixed`` or ``object``."""
    if isinstance(column, Ragged):
        return "token"
    return "object" if isinstance(column, list) else "fixed"


def dtypes_of(column: Column) -> str:
    """Return the dtype, such as ``int32``; for objects their types, such as ``int|str``, empty if there are no rows."""
    if isinstance(column, list):
        return "|".join(sorted({type(item).__name__ for item in column}))
    return dtype_name(column.values if isinstance(column, Ragged) else column)


def described(name: str, column: Column) -> str:
    """Describe the column for an error message: "column 'x' is a fixed column of float64 [3, 2]"."""
    if isinstance(column, Ragged):
        shape = f"[{len(column)} rows, {len(column.values)} tokens]"
        return f"column {name!r} is a token column of {dtypes_of(column)} {shape}"
    if isinstance(column, list):
        return f"column {name!r} is an object column of {dtypes_of(column) or 'nothing'} [{len(column)}]"
    return f"column {name!r} is a fixed column of {dtypes_of(column)} {list(column.shape)}"


def normalised(name: str, column: Column) -> Column:
    """Convert a column to the form in which a table holds it.

    A Ragged is a token column, and so is a nested tensor [B, *], copied. An array or tensor of numbers or bools with at
    least one axis is a fixed column. A list, and an array of anything else (objects, text, dates), is an object column,
    held as a list.

    Raises:
        ValueError: for anything else, by name.
    """
    if isinstance(column, Ragged | list):
        return column
    if not is_values(column):
        raise ValueError(
            f"column {name!r} is a {type(column).__name__}; expected a Ragged, an array, a tensor or a list with one "
            f"entry per row."
        )
    if column.ndim == 0:
        raise ValueError(
            f"column {name!r} is one {dtype_name(column)} without rows (shape []); expected one entry per row. One "
            f"value for the whole "
            f"table belongs in meta_info."
        )
    if is_tensor(column):
        import torch

        if column.is_nested:
            return Ragged.from_nested(column, name=name)
        if column.layout != torch.strided:
            raise ValueError(
                f"column {name!r} is a tensor of layout {column.layout}; expected a dense one. Use to_dense(), or a "
                f"Ragged for uneven rows."
            )
        return column if type(column) is torch.Tensor else column.as_subclass(torch.Tensor)
    if column.dtype.kind not in "biufc":
        return _objects(column)
    return column if column.dtype.isnative else column.astype(column.dtype.newbyteorder("="))


def as_tensor_column(name: str, column: Column) -> Column:
    """Return a token or fixed column; raise ValueError for anything else."""
    found = normalised(name, column)
    if isinstance(found, list):
        raise ValueError(
            f"{described(name, found)}; expected a Ragged, or an array or tensor of numbers or bools. Objects belong "
            f"in non_tensor_batch."
        )
    return found


def as_object_column(name: str, column: Column) -> Column:
    """Return an object column of a list or of any array, one object per row; raise ValueError for tensors and
    Ragged.
    """
    if isinstance(column, Ragged) or is_tensor(column):
        raise ValueError(f"{described(name, column)}; expected a list or an array of objects. Tensors belong in batch.")
    if isinstance(column, np.ndarray) and column.ndim > 0:
        return _objects(column)
    return normalised(name, column)


def _objects(column: Array) -> list[Any]:
    # Python's str instead of numpy's. Other scalars stay unchanged, because tolist would turn dates into numbers.
    return column.tolist() if column.ndim == 1 and column.dtype.kind == "U" else list(column)


def taken_rows(column: Column, index: Array) -> Column:
    """Return a copy of these rows that owns its storage (objects themselves are shared)."""
    if isinstance(column, Ragged):
        return column.take(index)
    if isinstance(column, list):
        return [column[i] for i in index.tolist()]
    return taken(column, index)


def viewed_rows(column: Column, start: int, end: int) -> Column:
    """Return rows ``start`` to ``end`` (exclusive) on the same storage."""
    return column.view(start, end) if isinstance(column, Ragged) else column[start:end]


def concatenated(name: str, parts: Sequence[Column]) -> Column:
    """Return a copy of all rows of the parts.

    Raises:
        ValueError: for parts of different kind, dtype, trailing shape or storage, which numpy and torch would convert
            silently.
    """
    first = parts[0]
    layout = _layout(first)
    odd = next((part for part in parts if _layout(part) != layout), None)
    if odd is not None:
        raise ValueError(
            f"tables to concatenate differ: {described(name, first)} held by {_holder(first)} in one and "
            f"{described(name, odd)} held by {_holder(odd)} in another; expected the same kind, dtype, trailing shape "
            "and storage. Convert one, or call to(device) on both."
        )
    ragged = [part for part in parts if isinstance(part, Ragged)]
    if ragged:
        return Ragged.from_lengths(
            joined([part.values for part in ragged]), np.concatenate([part.lengths for part in ragged])
        )
    if isinstance(first, list):
        return [item for part in parts for item in part]
    return joined([part for part in parts if is_values(part)])


def _holder(column: Column) -> str:
    if isinstance(column, list):
        return "Python"
    values = column.values if isinstance(column, Ragged) else column
    return f"torch on {values.device}" if is_tensor(values) else "numpy"


def _layout(column: Column) -> tuple[Any, ...]:
    """Return the properties that parts must have in common to be one column."""
    if isinstance(column, list):
        return ("object",)
    trailing = () if isinstance(column, Ragged) else tuple(column.shape[1:])
    return kind_of(column), dtypes_of(column), trailing, _holder(column)


def moved(name: str, column: Column, device: str | torch.device) -> Column:
    """Move a token or fixed column to torch on ``device``; objects stay where they are."""
    if isinstance(column, list):
        return column
    try:
        return column.to(device) if isinstance(column, Ragged) else as_tensor(column, device)
    except TypeError as error:
        raise ValueError(
            f"{described(name, column)}, a dtype that torch lacks; expected a dtype of torch. Convert it first."
        ) from error


def same_column(a: Column, b: Column) -> bool:
    """Return whether kind, dtype, shape and bits are equal, wherever they are stored; objects compare by ``==``."""
    return kind_of(a) == kind_of(b) and same(a, b)
