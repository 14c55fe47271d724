"""Prompts: dataset rows as token ids, and the table from which a rollout starts."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row, ground_truth
from verl_like.data.prompt_ids import kept_rows, tokenised_prompts
from verl_like.data.teacher_prompts import teacher_prompts
from verl_like.protocol import DataProto, Ragged

log = logging.getLogger(__name__)

TokenIds = NDArray[np.int32]
_KNOWN_COLUMNS = ("data_source", "extra_info", "reward_model")


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
    teacher_prompt_ids: TokenIds | None = None  # of a teacher that sees the row's privileged context; None without one


class PromptDataset(Sequence[Prompt]):
    """Rows, rendered and tokenised once, at the start.

    Args:
        rows: rows; those whose prompt is short enough are kept, in order.
        data: columns, templates and the treatment of long prompts.
        needs_ground_truth: whether every row must have one.
        has_privileged_teacher: whether prompts also have ``teacher_prompt_ids``.

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
        has_privileged_teacher: bool = False,
    ) -> None:
        texts, ids = tokenised_prompts(rows, data, tokenizer)
        kept = kept_rows(rows, ids, data)
        of_teacher: dict[int, TokenIds] = {}
        if has_privileged_teacher:
            of_teacher = teacher_prompts(rows, ids, kept, data, tokenizer)
            kept = list(of_teacher)
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
                teacher_prompt_ids=of_teacher.get(i),
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

    If a prompt has features there is a column ``features`` too, with an empty dict for a prompt without. There is
    ``teacher_prompt_ids`` if all prompts have them.
    """
    has_features = any(prompt.features for prompt in prompts)
    of_teacher = [prompt.teacher_prompt_ids for prompt in prompts if prompt.teacher_prompt_ids is not None]
    assert len(of_teacher) in (0, len(prompts)), "either all prompts have those of a teacher, or none"
    return DataProto(
        {
            "prompt_ids": Ragged.from_rows([prompt.prompt_ids for prompt in prompts], "int32"),
            "uid": [prompt.uid for prompt in prompts],
            "prompt_text": [prompt.text for prompt in prompts],
            "reward_inputs": [reward_inputs(prompt) for prompt in prompts],
            **({"features": [prompt.features or {} for prompt in prompts]} if has_features else {}),
            **({"teacher_prompt_ids": Ragged.from_rows(of_teacher, "int32")} if of_teacher else {}),
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


def _warn_of_tools(rows: Sequence[Row]) -> None:
    num_asking = sum(bool(_extra_info(row).get("need_tools_kwargs")) for row in rows)
    if num_asking:
        log.warning(
            "%d of %d rows require tools (extra_info.need_tools_kwargs), which only environment.tools or "
            "environment.path give to the policy",
            num_asking,
            len(rows),
        )


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
