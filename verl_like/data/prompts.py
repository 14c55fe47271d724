"""Prompts: dataset rows as token ids, and the table from which a rollout starts."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row, ground_truth, located
from verl_like.data.templates import Renderer
from verl_like.protocol import DataProto, Ragged

log = logging.getLogger(__name__)

TokenIds = NDArray[np.int32]
_KNOWN_COLUMNS = ("data_source", "extra_info", "reward_model")
_MEDIA_LISTS = ("images", "videos", "audios")  # as verl names them
_MEDIA_COLUMNS = (*_MEDIA_LISTS, "image", "video", "audio")
_ENCODED = {"bytes", "path"}  # keys that Hugging Face datasets write for an image, a video or a sound


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One row of a dataset, ready for generation."""

    prompt_ids: TokenIds  # [L]
    uid: str  # "file name:row", unique in its dataset and equal in every run
    text: str  # the text of prompt_ids, before any truncation
    data_source: str
    ground_truth: Any
    extra_info: dict[str, Any]
    messages: Any  # the prompt as in the row: a chat list or a string
    columns: dict[str, Any]  # columns of the row that no field above holds
    features: dict[str, Any] | None = None  # model inputs other than tokens, by name


class PromptDataset(Sequence[Prompt]):
    """Rows, rendered and tokenised once, at the start.

    Args:
        rows: rows; those whose prompt is short enough are kept, in order.
        data: columns, templates and the treatment of long prompts.
        needs_ground_truth: whether every row must have one.

    Raises:
        ValueError: for invalid rows or templates; the message names file and row.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        data: DataConfig,
        tokenizer: PreTrainedTokenizerBase,
        *,
        needs_ground_truth: bool = True,
    ) -> None:
        texts, ids = tokenised_prompts(rows, data, tokenizer)
        kept = kept_rows(rows, ids, data)
        _warn_of_tools([rows[i] for i in kept])
        self.file_numbers = [rows[i].file_number for i in kept]  # for each prompt, the position of its file
        self._prompts = [
            Prompt(
                prompt_ids=np.asarray(ids[i][-data.max_prompt_length :], dtype=np.int32),
                uid=rows[i].uid,
                text=texts[i],
                data_source=_data_source(rows[i], data),
                ground_truth=ground_truth(rows[i], data, is_needed=needs_ground_truth),
                extra_info=_extra_info(rows[i]),
                messages=rows[i].values[data.prompt_key],
                columns={
                    name: value
                    for name, value in rows[i].values.items()
                    if name not in (data.prompt_key, *_KNOWN_COLUMNS)
                },
            )
            for i in kept
        ]

    def __len__(self) -> int:
        return len(self._prompts)

    @overload
    def __getitem__(self, index: int) -> Prompt: ...

    @overload
    def __getitem__(self, index: slice) -> list[Prompt]: ...

    def __getitem__(self, index: int | slice) -> Prompt | list[Prompt]:
        return self._prompts[index]

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the prompts and their order: equal if the rows are, however templates render them."""
        digest = hashlib.sha256()
        for prompt in self._prompts:
            digest.update(repr((prompt.uid, prompt.messages)).encode())
        return digest.hexdigest()[:16]

    @property
    def data_sources(self) -> list[str]:
        """The distinct values of ``data_source``, in order of appearance."""
        return list(dict.fromkeys(prompt.data_source for prompt in self._prompts))


def prompt_table(prompts: Sequence[Prompt]) -> DataProto:
    """Return the columns ``prompt_ids``, ``uid``, ``prompt_text`` and ``reward_inputs``, with a row for each prompt.

    If a prompt has features there is a column ``features`` too, with an empty dict for a prompt without.
    """
    has_features = any(prompt.features for prompt in prompts)
    return DataProto(
        {
            "prompt_ids": Ragged.from_rows([prompt.prompt_ids for prompt in prompts], "int32"),
            "uid": [prompt.uid for prompt in prompts],
            "prompt_text": [prompt.text for prompt in prompts],
            "reward_inputs": [reward_inputs(prompt) for prompt in prompts],
            **({"features": [prompt.features or {} for prompt in prompts]} if has_features else {}),
        }
    )


def reward_inputs(prompt: Prompt) -> dict[str, Any]:
    """Return what scorers and environments get of a prompt."""
    return {
        "data_source": prompt.data_source,
        "ground_truth": prompt.ground_truth,
        "extra_info": prompt.extra_info,
        "messages": prompt.messages,
        "columns": prompt.columns,
    }


def tokenised_prompts(
    rows: Sequence[Row], data: DataConfig, tokenizer: PreTrainedTokenizerBase
) -> tuple[list[str], list[list[int]]]:
    """Return text and token ids of each row's prompt, before any truncation."""
    renderer = Renderer(data, tokenizer)
    texts = []
    for row in rows:
        refuse_media(row)
        prompt = row.value(data.prompt_key, "data.prompt_key")
        if prompt is None:
            raise ValueError(
                f"{row.location} has no prompt: {data.prompt_key!r} is null there. Fill it, or remove the row; "
                f"data.prompt_key names another column."
            )
        with located(row):
            text = renderer.text(prompt)
        refuse_halves(text, f"{row.location} has a prompt")
        texts.append(text)
    ids = token_ids(texts, tokenizer, add_special_tokens=renderer.adds_special_tokens)
    empty = next((row for row, row_ids in zip(rows, ids, strict=True) if not row_ids), None)
    if empty is not None:
        raise ValueError(
            f"{empty.location} has an empty prompt; generation needs at least one token. Remove the row, or fill "
            f"{data.prompt_key!r}."
        )
    return texts, ids


def refuse_halves(text: str, what: str) -> None:
    """Raise ValueError for half a surrogate pair, such as ends a truncated JSON string: no tokenizer accepts it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} with {text[error.start]!a} as its character {error.start}, half of a character (a lone "
            f"surrogate); expected whole ones. Correct or remove the row."
        ) from error


def refuse_media(row: Row) -> None:
    """Raise ValueError for a row with media: a prompt about an image means nothing without it."""
    found = [name for name, value in row.values.items() if _is_media(name, value)]
    if found:
        raise ValueError(
            f"{row.location} has {', '.join(found)}, which belong to its prompt; expected text-only prompts. Write the "
            f"files without such rows, or without these columns if the prompts do not need them."
        )


def _is_media(column: str, value: Any) -> bool:
    """Return whether a value is an image, a video or a sound, or a list of them; text never is, whatever its column."""
    if isinstance(value, list):
        return bool(value) and (column in _MEDIA_LISTS or _is_media(column, value[0]))
    if isinstance(value, dict):
        is_encoded = bool(_ENCODED & value.keys()) if column in _MEDIA_COLUMNS else value.keys() == _ENCODED
        return is_encoded and any(value[key] is not None for key in _ENCODED & value.keys())
    # Other values in such a column are encoded bytes, or the objects of a library that decoded them.
    return column in _MEDIA_COLUMNS and not isinstance(value, (str, int, float, type(None)))


def _warn_of_tools(rows: Sequence[Row]) -> None:
    num_asking = sum(bool(_extra_info(row).get("need_tools_kwargs")) for row in rows)
    if num_asking:
        log.warning(
            "%d of %d rows require tools (extra_info.need_tools_kwargs), which only environment.tools or "
            "environment.path give to the policy",
            num_asking,
            len(rows),
        )


def token_ids(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, *, add_special_tokens: bool) -> list[list[int]]:
    """Return token ids of each text; a text that occurs often (answers, repeated problems) is tokenised once."""
    texts = list(texts)
    unique = list(dict.fromkeys(texts))
    # verbose=False: the tokenizer's own warning about its model_max_length does not concern data.max_prompt_length.
    ids = tokenizer(unique, add_special_tokens=add_special_tokens, verbose=False)["input_ids"]
    by_text = dict(zip(unique, ids, strict=True))
    return [by_text[text] for text in texts]


def kept_rows(rows: Sequence[Row], ids: Sequence[list[int]], data: DataConfig) -> list[int]:
    """Return indices of the rows to keep, by ``data.overlong_prompts``."""
    limit = data.max_prompt_length
    overlong = [i for i, row_ids in enumerate(ids) if len(row_ids) > limit]
    if not overlong:
        return list(range(len(rows)))
    longest = max(len(ids[i]) for i in overlong)
    if data.overlong_prompts == "error":
        first = overlong[0]
        raise ValueError(
            f"{rows[first].location} has a prompt of {len(ids[first])} tokens, but data.max_prompt_length is {limit}; "
            f"{len(overlong)} of {len(rows)} rows are too long, the longest has {longest}. "
            f"Set data.max_prompt_length={longest}, or data.overlong_prompts=drop or truncate."
        )
    if data.overlong_prompts == "truncate":
        log.warning(
            "truncated %d of %d prompts to their last %d tokens (data.overlong_prompts=truncate)",
            len(overlong),
            len(rows),
            limit,
        )
        return list(range(len(rows)))
    if len(overlong) == len(rows):
        raise ValueError(
            f"data.overlong_prompts=drop leaves no rows: all {len(rows)} prompts are longer than "
            f"data.max_prompt_length={limit}. "
            f"Raise it (longest: {longest})."
        )
    log.warning(
        "dropped %d of %d prompts longer than %d tokens (data.overlong_prompts=drop)", len(overlong), len(rows), limit
    )
    dropped = set(overlong)
    return [i for i in range(len(rows)) if i not in dropped]


def _data_source(row: Row, data: DataConfig) -> str:
    source = row.values.get("data_source", data.data_source)
    if not isinstance(source, str) or not source:
        raise ValueError(
            f"{row.location} has {source!r} in the column data_source; expected a non-empty string. "
            f"Fill it, or drop the column and set data.data_source."
        )
    return source


def _extra_info(row: Row) -> dict[str, Any]:
    extra = row.values.get("extra_info")
    if extra is None:
        return {}
    if not isinstance(extra, dict):
        raise ValueError(
            f"{row.location} has a {type(extra).__name__} in the column extra_info; expected a dict. Correct or remove "
            f"the column."
        )
    return extra
