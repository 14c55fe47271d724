"""Prompts: dataset rows as token ids, and the table from which a rollout starts."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.files import EncodedRows, Row, ground_truth
from verl_like.data.illustrated_prompts import digests, illustrated_prompt, other_columns
from verl_like.data.pictures import PictureTokens
from verl_like.data.prompt_cache import PromptSummary, prompt_cache
from verl_like.data.prompt_ids import kept_rows
from verl_like.data.records import DECODED_AT_ONCE
from verl_like.data.row_pictures import loaded_prompts, refuse_changed
from verl_like.data.teacher_prompts import teacher_prompts
from verl_like.data.tokenised_prompts import TokenisedPrompts, one_by_one, prompt_batches
from verl_like.protocol import FEATURES, PICTURES, DataProto, Ragged

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
    messages: Any  # the prompt as in the row: a chat list or a string; its pictures are {type: image}, without content
    columns: dict[str, Any]  # columns of the row that no field above holds
    features: dict[str, Any] | None = None  # model inputs other than tokens, by name
    teacher_prompt_ids: TokenIds | None = None  # of a teacher that sees the row's privileged context; None without one


class PromptDataset(Sequence[Prompt]):
    """Rows, rendered and tokenised once, at the start. A prompt is made from its row each time it is read.

    Args:
        rows: rows; those whose prompt is short enough are kept, in order.
        data: columns, templates, the treatment of long prompts, and the folder of tokenised prompts.
        needs_ground_truth: whether every row must have one.
        has_privileged_teacher: whether prompts also have ``teacher_prompt_ids``.
        pictures: tokens of a model that reads pictures; the prompt of a row with pictures then has the feature
            ``images``, a list of encoded files, which are read with the prompt; a video's are its frames.

    Raises:
        ValueError: for invalid rows or templates; the message names file and row.
    """

    def __init__(
        self,
        rows: EncodedRows,
        data: DataConfig,
        tokenizer: PreTrainedTokenizerBase,
        *,
        needs_ground_truth: bool = True,
        has_privileged_teacher: bool = False,
        pictures: PictureTokens | None = None,
    ) -> None:
        self._data, self._needs_ground_truth, self._pictures = data, needs_ground_truth, pictures
        cache = prompt_cache(rows, data, tokenizer, needs_ground_truth=needs_ground_truth)
        if has_privileged_teacher or pictures is not None:
            cache = None  # its entries have no teacher's prompts, and their keys cover no files of pictures
        found = cache.read() if cache is not None else None
        if found is None:
            rows.check()
            batches = partial(prompt_batches, rows, data, tokenizer, pictures)
            self._tokenised = cache.stored(batches) if cache is not None else TokenisedPrompts(batches())
        else:
            self._tokenised, self._summary = found
        self._kept = kept_rows(rows, self._tokenised.lengths, data)
        self._of_teacher: dict[int, TokenIds] = {}  # by the index of the row
        if has_privileged_teacher:
            self._refuse_pictures(rows)
            ids = [self._tokenised.ids(i) for i in range(len(rows))]
            self._of_teacher = teacher_prompts(rows, ids, self._kept.tolist(), data, tokenizer)
            self._kept = np.array(list(self._of_teacher), np.int64)
        self._rows = rows.take(self._kept)
        if found is None:
            self._summary = self._checked()
            if cache is not None:
                cache.publish(self._summary)
        self.file_numbers = self._rows.file_numbers  # for each prompt, the position of its file
        self._warn_of_tools()

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Prompt: ...

    @overload
    def __getitem__(self, index: slice) -> list[Prompt]: ...

    def __getitem__(self, index: int | slice) -> Prompt | list[Prompt]:
        found = range(len(self))[index]
        return self.at([found])[0] if isinstance(found, int) else self.at(found)

    def __iter__(self) -> Iterator[Prompt]:
        num_at_once = DECODED_AT_ONCE if self._pictures is None else 1
        for first in range(0, len(self), num_at_once):
            yield from self[first : first + num_at_once]

    def at(self, indices: Sequence[int]) -> list[Prompt]:
        """Return the prompts with these indices, from 0; faster than one by one."""
        rows = self._rows.read(np.asarray(indices, np.int64))
        numbers = self._kept[indices].tolist()
        if self._pictures is None:
            return [self._prompt(row, i) for row, i in zip(rows, numbers, strict=True)]
        found = [illustrated_prompt(row, self._data) for row in rows]
        loaded = loaded_prompts(rows, found, self._data)
        return [
            self._with_pictures(self._prompt(row, i), row, each.prompt, each.pictures)
            for row, i, each in zip(rows, numbers, loaded, strict=True)
        ]

    @property
    def digest(self) -> str:
        """Digest of the prompts and their order: equal if the rows are, however templates render them."""
        return self._summary.digest

    @property
    def data_sources(self) -> list[str]:
        """The distinct values of ``data_source``, in order of appearance."""
        return list(self._summary.sources)

    def first_of_each_source(self) -> list[Prompt]:
        """Return the first prompt of each data source, in order of appearance."""
        return self.at(list(self._summary.sources.values()))

    def ground_truths(self) -> Iterator[tuple[str, str, Any]]:
        """Yield uid, data source and ground truth of each prompt; faster than reading whole prompts."""
        for row in self._each_row():
            yield row.uid, _data_source(row, self._data), self._ground_truth(row)

    def _each_row(self) -> Iterator[Row]:
        return iter(self._rows) if self._pictures is None else one_by_one(self._rows)

    def _ground_truth(self, row: Row) -> Any:
        return ground_truth(row, self._data, is_needed=self._needs_ground_truth)

    def _prompt(self, row: Row, number: int) -> Prompt:
        """Return the prompt of a row; ``number`` is its index among the rows before any was dropped."""
        return Prompt(
            prompt_ids=self._tokenised.ids(number)[-self._data.max_prompt_length :].copy(),
            uid=row.uid,
            text=self._tokenised.text(number),
            data_source=_data_source(row, self._data),
            ground_truth=self._ground_truth(row),
            extra_info=_extra_info(row),
            messages=row.values[self._data.prompt_key],
            columns={
                name: value
                for name, value in row.values.items()
                if name not in (self._data.prompt_key, *_KNOWN_COLUMNS)
            },
            teacher_prompt_ids=self._of_teacher.get(number),
        )

    def _with_pictures(self, prompt: Prompt, row: Row, messages: Any, contents: list[bytes]) -> Prompt:
        assert self._pictures is not None, "only a model that reads pictures gets them"
        num_tokens = int(np.count_nonzero(prompt.prompt_ids == self._pictures.token_id))
        refuse_changed(row, contents, num_tokens, self._pictures)
        names = set(other_columns(row, self._data))
        columns = {name: value for name, value in prompt.columns.items() if name in names}
        return replace(prompt, messages=messages, columns=columns, features={PICTURES: contents} if contents else None)

    def _refuse_pictures(self, rows: EncodedRows) -> None:
        """Raise ValueError for rows with pictures, which a teacher with a privileged context does not get."""
        for row in one_by_one(rows) if self._pictures is not None else ():
            if illustrated_prompt(row, self._data).pictures:
                raise ValueError(
                    f"{row.location} has pictures, but the prompts of a teacher with a privileged context are text. "
                    f"Set algorithm.distill_teacher=ref, or remove rows with pictures."
                )

    def _digested(self, row: Row) -> tuple[Any, ...]:
        """Return what the digest covers of a row: uid and prompt, and digests of its pictures if it has some."""
        if self._pictures is None:
            return row.uid, row.values[self._data.prompt_key]
        found = illustrated_prompt(row, self._data)
        if not found.pictures:
            return row.uid, row.values[self._data.prompt_key]
        return row.uid, found.prompt, digests(found)

    def _checked(self) -> PromptSummary:
        """Read everything else of the rows that a prompt has."""
        digest, sources, num_with_tools = hashlib.sha256(), dict[str, int](), 0
        for i, row in enumerate(self._each_row()):
            sources.setdefault(_data_source(row, self._data), i)
            self._ground_truth(row)
            num_with_tools += bool(_extra_info(row).get("need_tools_kwargs"))
            digest.update(repr(self._digested(row)).encode())
        return PromptSummary(digest.hexdigest()[:16], sources, num_with_tools)

    def _warn_of_tools(self) -> None:
        if self._summary.num_with_tools:
            log.warning(
                "%d of %d rows require tools (extra_info.need_tools_kwargs), which only environment.tools or "
                "environment.path give to the policy",
                self._summary.num_with_tools,
                len(self),
            )


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
            **({FEATURES: [prompt.features or {} for prompt in prompts]} if has_features else {}),
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
