"""Prompts with the responses of other rows, from which KTO estimates the policy's KL from the reference."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from verl_like.controller.remote_batch import RemoteBatch
from verl_like.ops.partition import partition
from verl_like.protocol import Array, DataProto
from verl_like.training.reference import ComputeLogProbs, Reference


class MismatchedRows:
    """Estimates the KL of each mini-batch: the mean log-ratio of its prompts with the responses of other items.

    A row's prompt gets the response of the row before it in the mini-batch, and the first prompt that of the last row,
    as in TRL. A pair's prompt gets both responses of the pair before it. The reference's log-probs of all these rows
    are computed before training, while the actor still has its initial weights.

    Args:
        policy: computes the current policy's log-probs.
    """

    def __init__(self, policy: ComputeLogProbs, reference: Reference) -> None:
        self._policy, self._reference = policy, reference
        self._keys, self._log_probs = np.zeros(0, np.int64), np.zeros(0, np.float64)  # ascending; nats
        self._num_rows = 0

    def prepare(
        self, rows: DataProto, batch: RemoteBatch, mini_batches: Iterable[Array], *, rows_per_item: int
    ) -> None:
        """Add the fact ``row``, and compute the reference's log-probs of the mismatched rows.

        Args:
            batch: of ``rows``, in their order.
            mini_batches: rows of each mini-batch whose KL will be estimated.
        """
        found = [np.stack([prompts, np.roll(prompts, rows_per_item)], 1) for prompts in mini_batches]
        pairs = np.unique(np.concatenate(found), axis=0)
        prompts, responses = rows.ragged("prompt_ids"), rows.ragged("response_ids")
        texts = ((prompts[i], responses[j]) for i, j in pairs)
        log_probs = self._reference.log_probs(texts, recombined(batch, pairs[:, 0], pairs[:, 1]))
        first = self._num_rows
        batch.add_facts({"row": first + np.arange(len(rows), dtype=np.int64)})
        self._num_rows += len(rows)
        # Rows are numbered over all tables, so these keys are above all earlier ones, and stay ascending.
        self._keys = np.concatenate([self._keys, _keys(first + pairs[:, 0], first + pairs[:, 1])])
        self._log_probs = np.concatenate([self._log_probs, log_probs])

    def kl(self, batch: RemoteBatch, *, rows_per_item: int, ranks: int) -> float:
        """Return the estimate of a mini-batch that :meth:`prepare` was given: the mean over all ranks' rows, nats, at
        least 0.
        """
        prompts = np.arange(len(batch))
        responses = np.roll(prompts, rows_per_item)
        mismatched = recombined(batch, prompts, responses)
        numbers = batch.facts["row"]
        keys = _keys(numbers[prompts], numbers[responses])
        found = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        assert np.array_equal(self._keys[found], keys), "this mini-batch was not given to prepare"
        reference = self._log_probs[found]
        policy = self._policy(mismatched, partition(mismatched.facts["tokens"], ranks))
        return max(float((policy - reference).mean()), 0.0)


def recombined(batch: RemoteBatch, prompts: Array, responses: Array) -> RemoteBatch:
    """Return the prompts of these rows, each with the response of another row, by reference."""
    of_prompts, of_responses = batch.select(prompts), batch.select(responses)
    prompt_tokens = of_prompts.facts["tokens"] - of_prompts.facts["learnt_tokens"]
    response_tokens = of_responses.facts["learnt_tokens"]  # all that a preference has
    of_prompts.drop(of_prompts.columns - {"prompt_ids"})
    of_responses.drop(of_responses.columns - {"response_ids", "response_mask"})
    facts = {"tokens": prompt_tokens + response_tokens, "learnt_tokens": response_tokens}
    return RemoteBatch(facts, [*of_prompts.layers, *of_responses.layers])


def _keys(prompts: Array, responses: Array) -> Array:
    """Return one number for each prompt's and response's row, ascending with the former and then with the latter."""
    return (prompts << 32) | responses
