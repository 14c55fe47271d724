"""Finished groups of responses as blocks: the facts of some rows, then the table with their columns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verl_like.controller.blocks import MAX_STREAM_BLOCKS
from verl_like.controller.remote_batch import Facts
from verl_like.protocol import (
    CANDIDATES,
    EPISODE_ROW,
    EXPERTS,
    FEATURES,
    RESPONSE_FEATURES,
    Array,
    Column,
    DataProto,
    Ragged,
)
from verl_like.workers.episode_pictures import no_response, pictures_of
from verl_like.workers.episodes import FinishedSample, Response

PROMPT_COLUMNS = ("prompt_ids", "group_id", "uid", "reward_inputs", "prompt_text")
ROLLOUT_COLUMNS = frozenset(
    {"prompt_ids", "response_ids", "response_mask", "rollout_log_probs", "reward_inputs", "prompt_text"}
)
TURN_COLUMNS = frozenset({EPISODE_ROW, "turn_index", "turn_tokens", "turn_rewards", "state_keys"})  # of episodes
CANDIDATE_COLUMNS = frozenset(CANDIDATES)  # of responses whose engine reports candidates
TEACHER_COLUMNS = frozenset({"teacher_prompt_ids"})  # of prompts that have them; so have their blocks
# Engines read features, but do not return them: the batch of a step refers to those of the prompts.
OPTIONAL_COLUMNS = TEACHER_COLUMNS | {FEATURES}

MAX_WAIT_S = 0.5  # of a small block; otherwise scores of few, long responses would arrive only after the last of them


@dataclass
class _Group:
    """The samples of one prompt, collected as they finish."""

    samples: dict[int, FinishedSample] = field(default_factory=dict)

    def in_order(self) -> list[FinishedSample]:
        return [self.samples[number] for number in sorted(self.samples)]

    def num_bytes(self, prompt_tokens: int) -> int:
        """Return the bytes of the token columns: ids, mask, log-probs and candidates of responses, and the ids of the
        prompt; and of an episode's pictures.
        """
        responses = [response for each in self.samples.values() for response in each.responses]
        pictures = sum(len(content) for response in responses for content in pictures_of(response.features))
        candidates = sum(4 * (1 + len(ids)) for response in responses for ids in response.candidates)
        return pictures + candidates + sum(9 * len(response.token_ids) + 4 * prompt_tokens for response in responses)


@dataclass(kw_only=True)
class _Block:
    """Finished groups that wait until they form a block, or for the longest allowed time."""

    min_groups: int
    min_bytes: float
    groups: list[_Group] = field(default_factory=list)
    num_bytes: int = 0
    since: float = 0.0  # arrival of the first group

    def add(self, group: _Group, *, prompt_tokens: int) -> None:
        if not self.groups:
            self.since = time.monotonic()
        self.groups.append(group)
        self.num_bytes += group.num_bytes(prompt_tokens)

    def is_due(self) -> bool:
        if not self.groups or len(self.groups) < self.min_groups:
            return False
        return self.num_bytes >= self.min_bytes or time.monotonic() - self.since >= MAX_WAIT_S

    def take(self) -> list[FinishedSample]:
        """Return the samples by (group, number), and start the next block."""
        groups, self.groups, self.num_bytes = self.groups, [], 0
        return [sample for group in groups for sample in group.in_order()]


class GroupBlocks:
    """Collects the samples of some prompts as they finish, and cuts blocks of finished groups.

    Args:
        prompts: the columns ``PROMPT_COLUMNS``, and some of ``OPTIONAL_COLUMNS``.
        n: samples of each prompt.
        num_prompts: how many of the prompts this engine will finish, if it does not finish all.
        writer: this rank, which writes the blocks.
        block_kib: size of a block, as ``rollout.block_kib``.
        first_row: row of the first prompt among the samples' rows.
        keeps_versions: whether the blocks name the weights of each token, which may change while an engine samples.
    """

    def __init__(
        self,
        prompts: DataProto,
        *,
        n: int,
        num_prompts: int,
        writer: int,
        block_kib: float,
        first_row: int = 0,
        keeps_versions: bool = False,
    ) -> None:
        self._keeps_versions = keeps_versions
        self._prompts, self._n, self._writer, self._first_row = prompts, n, writer, first_row
        self._prompt_tokens = prompts.ragged("prompt_ids").lengths
        self._unfinished: dict[int, _Group] = {}  # groups with some, but not all, samples finished
        self._block = _Block(min_groups=max(1, num_prompts // MAX_STREAM_BLOCKS), min_bytes=block_kib * 1024)

    def add(self, sample: FinishedSample) -> None:
        group = self._unfinished.setdefault(sample.row, _Group())
        group.samples[sample.number] = sample
        if len(group.samples) == self._n:
            tokens = int(self._prompt_tokens[sample.row - self._first_row])
            self._block.add(self._unfinished.pop(sample.row), prompt_tokens=tokens)

    def due(self) -> Iterator[Facts | DataProto]:
        """Yield the facts of a block and the block, if it is large or old enough."""
        if self._block.is_due():
            yield from self._rows(self._block.take())

    def rest(self) -> Iterator[Facts | DataProto]:
        """Yield the facts and the block of the groups that have finished since the last one, if there are any."""
        if self._block.groups:
            yield from self._rows(self._block.take())

    def _rows(self, samples: list[FinishedSample]) -> Iterator[Facts | DataProto]:
        """Yield the facts of these samples, then the block with their columns."""
        of_row = [sample for sample in samples for _ in sample.responses]
        found = [response for sample in samples for response in sample.responses]
        source = self._prompts.select_idxs([sample.row - self._first_row for sample in of_row])
        responses = Ragged.from_rows([response.token_ids for response in found], "int32")
        prompt_ids, candidates = source.ragged("prompt_ids"), _candidate_columns(found)
        experts, pictures = _expert_columns(found), _picture_columns(source, found)
        if any(response.prompt_ids is not None for response in found):
            own = [response.prompt_ids for response in found]
            prompt_ids = Ragged.from_rows([prompt_ids[i] if ids is None else ids for i, ids in enumerate(own)], "int32")
        yield {
            "group_id": np.asarray(source["group_id"]),
            "sample": np.array([sample.number for sample in of_row], np.int32),
            "uid": np.array(source["uid"]),
            "prompt_tokens": prompt_ids.lengths,
            "response_tokens": responses.lengths,
            "finish_reason": np.array([response.finish_reason for response in found]),
            "log_prob_sum": np.array([_log_prob_sum(response) for response in found], np.float32),
            "weight_version_min": np.array([sample.version for sample in of_row], np.int64),
            "weight_version_max": np.array([sample.newest_version for sample in of_row], np.int64),
            "writer": np.full(len(of_row), self._writer),
            **{name: np.array([sample.facts[name] for sample in of_row]) for name in of_row[0].facts},
            **_episode_counts(samples),
            **({"candidates": candidates["candidate_ids"].lengths} if candidates else {}),
            **({"expert_bytes": experts[EXPERTS].lengths * experts[EXPERTS].dtype.itemsize} if experts else {}),
            **({"picture_bytes": _picture_bytes(pictures[RESPONSE_FEATURES])} if pictures else {}),
        }
        yield DataProto(
            {
                "prompt_ids": prompt_ids,
                "response_ids": responses,
                "response_mask": Ragged.from_rows([response.is_sampled for response in found], "bool"),
                "rollout_log_probs": Ragged.from_rows([response.log_probs for response in found], "float32"),
                "reward_inputs": _with_chats(source["reward_inputs"], found),
                "prompt_text": source["prompt_text"],
                **{name: source[name] for name in sorted(TEACHER_COLUMNS & source.columns.keys())},
                **pictures,
                **({"weight_version": _versions_of(of_row, found)} if self._keeps_versions else {}),
                **_turn_columns(samples),
                **candidates,
                **experts,
            }
        )


def _versions_of(of_row: Sequence[FinishedSample], found: Sequence[Response]) -> Ragged:
    """Return the version of the weights that sampled each token; -1 if the episode does not say which of several."""
    rows = []
    for sample, response in zip(of_row, found, strict=True):
        only = sample.version if sample.version == sample.newest_version else -1
        rows.append(np.full(len(response.token_ids), only) if response.versions is None else response.versions)
    return Ragged.from_rows(rows, "int32")


def _candidate_columns(found: Sequence[Response]) -> dict[str, Ragged]:
    """Return the columns ``CANDIDATES`` of these responses; none if no candidates were requested."""
    if not any(len(response.candidates) for response in found):
        return {}
    for response in found:
        assert len(response.candidates) == len(response.token_ids), (
            f"the engine returned {len(response.candidates)} sets of candidates for {len(response.token_ids)} tokens"
        )
    sets = [[np.asarray(ids, np.int32) for ids in response.candidates] for response in found]
    none = np.empty(0, np.int32)
    return {
        "candidate_ids": Ragged.from_rows([np.concatenate([none, *of_row]) for of_row in sets], "int32"),
        "num_candidates": Ragged.from_rows([[len(ids) for ids in of_row] for of_row in sets], "int32"),
    }


def _expert_columns(found: Sequence[Response]) -> dict[str, Ragged]:
    """Return the column ``EXPERTS`` of these responses; none if no experts were requested."""
    experts = [response.experts for response in found if response.experts is not None]
    if not experts:
        return {}
    assert len(experts) == len(found), f"{len(experts)} of {len(found)} responses have experts"
    return {EXPERTS: Ragged.from_rows([of_row.reshape(-1) for of_row in experts], experts[0].dtype.name)}


def _picture_columns(source: DataProto, found: Sequence[Response]) -> dict[str, list[Any]]:
    """Return the column ``RESPONSE_FEATURES`` of an episode's rows; none if the model reads text only.

    A row without a token has empty features: its prompt is that of the data set, with its pictures.
    """
    if all(response.features is None for response in found):
        return {}
    of_prompts: Any = source.columns.get(FEATURES, [{}] * len(found))
    return {
        RESPONSE_FEATURES: [
            dict(response.features) if response.features else no_response(of_prompt)
            for response, of_prompt in zip(found, of_prompts, strict=True)
        ]
    }


def _picture_bytes(features: Sequence[Mapping[str, Any]]) -> Array:
    return np.array([sum(map(len, pictures_of(each))) for each in features], np.int64)


def _log_prob_sum(response: Response) -> float:
    """Return the sum over the tokens that are learned from, in nats; 0 for copies of an earlier row's tokens."""
    if response.turns is None:
        return sum(response.log_probs)
    return float(np.asarray(response.log_probs, np.float64)[response.is_sampled].sum())


def _has_turns(samples: Sequence[FinishedSample]) -> bool:
    with_turns = [response.turns is not None for sample in samples for response in sample.responses]
    assert all(with_turns) or not any(with_turns), "either all rows of a block have turns, or none"
    return all(with_turns)


def _episode_counts(samples: Sequence[FinishedSample]) -> Facts:
    """Return the facts by which the rows of an episode count as one sample; none if each sample is one row."""
    if not _has_turns(samples):
        return {}
    return {
        EPISODE_ROW: np.array([row for sample in samples for row in range(len(sample.responses))], np.int32),
        "sampled_tokens": np.array([each.is_sampled.sum() for sample in samples for each in sample.responses]),
    }


def _turn_columns(samples: Sequence[FinishedSample]) -> dict[str, Column]:
    """Return the columns that describe each row's turns, one entry per turn, and ``episode_row``."""
    if not _has_turns(samples):
        return {}
    turns = [each.turns for sample in samples for each in sample.responses if each.turns is not None]
    return {
        EPISODE_ROW: _episode_counts(samples)[EPISODE_ROW],
        "turn_index": Ragged.from_rows([each.index for each in turns], "int32"),
        "turn_tokens": Ragged.from_rows([each.num_tokens for each in turns], "int32"),
        "turn_rewards": Ragged.from_rows([each.rewards for each in turns], "float32"),
        "state_keys": Ragged.from_rows([each.state_keys for each in turns], "int64"),
    }


def _with_chats(inputs: Any, found: Sequence[Response]) -> Any:
    """Return what scorers get of each row; an episode adds its chat, its environment's attributes and traceback."""
    if not any(response.messages or response.traceback for response in found):
        return inputs
    return [
        {
            **row,
            "episode": {
                "prompt": [dict(message) for message in response.messages[: response.num_prompt_messages]],
                "completion": [dict(message) for message in response.messages[response.num_prompt_messages :]],
                "environment": dict(response.environment),
                **({"traceback": response.traceback} if response.traceback else {}),
            },
        }
        for row, response in zip(inputs, found, strict=True)
    ]
