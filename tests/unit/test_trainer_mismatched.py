"""Prompts with the responses of other rows: which are combined, and the estimate of the KL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from verl_like.controller.remote_batch import Layer, RemoteBatch
from verl_like.protocol import Array, DataProto, Ragged
from verl_like.training.mismatched import MismatchedRows
from verl_like.training.reference import Reference, ReferenceCache

COLUMNS = frozenset({"prompt_ids", "response_ids", "response_mask", "is_chosen"})


def remote(rows: DataProto) -> RemoteBatch:
    """Return a batch whose block is never fetched."""
    prompts, responses = (rows.ragged(name).lengths for name in ("prompt_ids", "response_ids"))
    index = np.arange(len(rows), dtype=np.int32)
    layer = Layer(COLUMNS, "prompts", (object(),), np.zeros(len(rows), np.int32), index)  # type: ignore[arg-type]
    return RemoteBatch({"tokens": prompts + responses, "learnt_tokens": responses}, [layer])


def table(num_rows: int) -> DataProto:
    """Rows with prompts of 1, 2, ... tokens and responses of 10, 11, ... tokens."""
    prompts, responses = ([[i] * (i + first) for i in range(num_rows)] for first in (1, 10))
    return DataProto(
        {"prompt_ids": Ragged.from_rows(prompts, "int32"), "response_ids": Ragged.from_rows(responses, "int32")}
    )


def combined(batch: RemoteBatch) -> list[tuple[int, int]]:
    """Return the rows of each prompt and response, and check the number of their tokens."""
    [prompts] = [layer for layer in batch.layers if layer.columns == {"prompt_ids"}]
    [responses] = [layer for layer in batch.layers if layer.columns == {"response_ids", "response_mask"}]
    found = list(zip(prompts.index.tolist(), responses.index.tolist(), strict=True))
    assert batch.facts["tokens"].tolist() == [i + 1 + j + 10 for i, j in found]
    assert batch.facts["learnt_tokens"].tolist() == [j + 10 for _, j in found]
    return found


class Model:
    """Has the log-prob ``-(10 i + j) / scale`` of prompt i with response j, and records what it was asked for."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.asked: list[list[tuple[int, int]]] = []
        self.parts: list[int] = []

    def __call__(self, batch: RemoteBatch, parts: Sequence[Array]) -> Array:
        self.asked.append(combined(batch))
        self.parts.append(len(parts))
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(batch)))
        return np.array([-(10 * i + j) / self.scale for i, j in self.asked[-1]])


def mismatched(policy: Model, reference: Model) -> MismatchedRows:
    return MismatchedRows(policy, Reference(reference, ReferenceCache("", model="", settings=""), ranks=1))


def test_a_prompt_gets_the_response_of_the_row_before_it_in_its_mini_batch() -> None:
    policy, reference = Model(2.0), Model(1.0)
    rows = table(5)
    batch, found = remote(rows), mismatched(policy, reference)
    steps = [np.array([3, 0, 4]), np.array([1, 3, 0]), np.array([3, 0, 4])]
    found.prepare(rows, batch, iter(steps), rows_per_item=1)
    assert sorted(reference.asked[0]) == [(0, 3), (1, 0), (3, 1), (3, 4), (4, 0)], "each once, though a step recurs"
    for step, pairs in zip(
        steps, ([(3, 4), (0, 3), (4, 0)], [(1, 0), (3, 1), (0, 3)], [(3, 4), (0, 3), (4, 0)]), strict=True
    ):
        expected = np.mean([(10 * i + j) / 2 for i, j in pairs])  # half of what the reference has
        assert found.kl(batch.select(step), rows_per_item=1, ranks=2) == pytest.approx(expected, rel=1e-12)
        assert policy.asked[-1] == pairs and policy.parts[-1] == 2
    assert len(reference.asked) == 1, "the reference computes nothing during training"


def test_a_pairs_prompt_gets_both_responses_of_the_pair_before_it() -> None:
    policy, reference = Model(2.0), Model(1.0)
    rows = table(6)
    batch, found = remote(rows), mismatched(policy, reference)
    step = np.array([4, 5, 0, 1, 2, 3])
    found.prepare(rows, batch, [step], rows_per_item=2)
    found.kl(batch.select(step), rows_per_item=2, ranks=1)
    assert policy.asked == [[(4, 2), (5, 3), (0, 4), (1, 5), (2, 0), (3, 1)]]


def test_the_estimate_is_not_below_zero() -> None:
    rows = table(3)
    batch, found = remote(rows), mismatched(Model(1.0), Model(2.0))
    found.prepare(rows, batch, [np.arange(3)], rows_per_item=1)
    assert found.kl(batch, rows_per_item=1, ranks=1) == 0.0


def test_training_and_held_out_rows_have_separate_estimates() -> None:
    policy, reference = Model(4.0), Model(1.0)
    found = mismatched(policy, reference)
    tables = [table(3), table(4)]
    batches = [remote(rows) for rows in tables]
    for rows, batch in zip(tables, batches, strict=True):
        found.prepare(rows, batch, [np.arange(len(rows))], rows_per_item=1)
    for batch, pairs in zip(batches, ([(0, 2), (1, 0), (2, 1)], [(0, 3), (1, 0), (2, 1), (3, 2)]), strict=True):
        expected = np.mean([0.75 * (10 * i + j) for i, j in pairs])
        assert found.kl(batch, rows_per_item=1, ranks=1) == pytest.approx(expected, rel=1e-12)


def test_a_mini_batch_that_was_not_prepared_is_an_error() -> None:
    rows = table(3)
    batch, found = remote(rows), mismatched(Model(1.0), Model(1.0))
    found.prepare(rows, batch, [np.array([0, 1])], rows_per_item=1)
    with pytest.raises(AssertionError, match="this mini-batch was not given to prepare"):
        found.kl(batch.select([1, 2]), rows_per_item=1, ranks=1)
