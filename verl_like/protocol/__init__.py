"""DataProto: a table whose rows are responses, and the list of known columns.

A *token column* is ragged: one contiguous array plus row offsets, without padding. A *fixed column* is an array whose
first axis is the rows. An *object column* holds Python objects. Every slice, chunk or selection owns its storage, and a
pickle contains only its own rows.
"""

from verl_like.protocol.base_table import DataProtoItem
from verl_like.protocol.columns import (
    CANDIDATES,
    COLUMNS,
    EXPERTS,
    FEATURE_COLUMNS,
    FEATURES,
    PAIR,
    PICTURES,
    PROMPT_PICTURES,
    PROMPTS,
    RESPONSE_FEATURES,
    TEACHER,
    Column,
    ColumnSpec,
    bytes_per_token,
    token_columns,
)
from verl_like.protocol.episode_rows import (
    EPISODE_ROW,
    episode_numbers,
    last_rows,
    num_samples,
    over_episode,
    sampled_tokens,
    samples_of,
    whole_episodes,
)
from verl_like.protocol.folding import fold_batch_dim, unfold_batch_dim
from verl_like.protocol.ragged import Ragged
from verl_like.protocol.rows_file import read_rows, write_rows
from verl_like.protocol.selection import Selection, row_index
from verl_like.protocol.storage import Array
from verl_like.protocol.table import DataProto, check_columns
from verl_like.protocol.verl_methods import pad_dataproto_to_divisor, unpad_dataproto

__all__ = [
    "CANDIDATES",
    "COLUMNS",
    "EPISODE_ROW",
    "EXPERTS",
    "FEATURES",
    "FEATURE_COLUMNS",
    "PAIR",
    "PICTURES",
    "PROMPTS",
    "PROMPT_PICTURES",
    "RESPONSE_FEATURES",
    "TEACHER",
    "Array",
    "Column",
    "ColumnSpec",
    "DataProto",
    "DataProtoItem",
    "Ragged",
    "Selection",
    "bytes_per_token",
    "check_columns",
    "episode_numbers",
    "fold_batch_dim",
    "last_rows",
    "num_samples",
    "over_episode",
    "pad_dataproto_to_divisor",
    "read_rows",
    "row_index",
    "sampled_tokens",
    "samples_of",
    "token_columns",
    "unfold_batch_dim",
    "unpad_dataproto",
    "whole_episodes",
    "write_rows",
]
