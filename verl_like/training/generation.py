"""Turn prompts into a batch of responses while scoring runs; shared by training and validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from verl_like.backends.base import Sampling
from verl_like.config.schema import Config
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.data.prompts import Prompt, prompt_table
from verl_like.protocol import FEATURES, DataProto, num_samples
from verl_like.workers.groups import Generator


def train_sampling(config: Config) -> Sampling:
    rollout = config.rollout
    return Sampling(
        max_tokens=config.data.max_response_length,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        ignore_eos=rollout.ignore_eos,
        returns_candidates=rollout.keep_sampling_mask,
        returns_experts=rollout.router_replay,
    )


def greedy_sampling(config: Config) -> Sampling:
    return Sampling(max_tokens=config.data.max_response_length, temperature=0.0, ignore_eos=config.rollout.ignore_eos)


def val_sampling(config: Config) -> Sampling:
    val = config.rollout.val
    return Sampling(
        max_tokens=config.data.max_response_length, temperature=val.temperature, top_p=val.top_p, top_k=val.top_k
    )


def put_prompts(prompts: Sequence[Prompt]) -> RemoteBatch:
    """Return the batch of these prompts; ``group_id`` is the position in it."""
    table = prompt_table(prompts)
    group_ids = np.arange(len(prompts), dtype=np.int64)
    uids = np.array([prompt.uid for prompt in prompts])
    return RemoteBatch.put(table.union(DataProto({"group_id": group_ids})), {"group_id": group_ids, "uid": uids})


def generate(
    asked: RemoteBatch,
    *,
    rollout: Generator,
    begin: Callable[[Facts, BlockRef], None] | None,
    n: int,
    sampling: Sampling,
    step: int,
    version: int,
    first_sample: int = 0,
) -> RemoteBatch:
    """Generate ``n`` responses to each prompt; rows are sorted by (prompt, sample), not by arrival.

    An episode with an environment may have several rows, which stay adjacent.

    Args:
        asked: :func:`put_prompts` of the prompts.
        begin: called with the facts and the block of some rows as soon as they exist, to start their scoring; None if
            nothing is scored.
        first_sample: number of a prompt's first sample in this step's seeds; above 0 if a prompt may be drawn again.
    """
    blocks = []
    for facts, block in rollout.generate(
        asked, n=n, sampling=sampling, step=step, version=version, first_sample=first_sample
    ):
        if begin is not None:
            begin(facts, block)
        blocks.append((facts, block))
    batch = joined_blocks(blocks, asked, rollout.columns_of(asked, blocks[0][0]))
    found = num_samples(batch.facts)
    assert found == len(asked) * n, f"{found} responses came back for {len(asked)} prompts x {n}"
    return batch


def joined_blocks(blocks: Sequence[tuple[Facts, BlockRef]], asked: RemoteBatch, columns: frozenset[str]) -> RemoteBatch:
    """Return the rows of these blocks, sorted by (prompt, sample), with the prompts' pictures by reference.

    Args:
        columns: of the blocks.
    """
    batch = RemoteBatch.from_blocks(blocks, columns, producer="rollout")
    batch = batch.select(np.lexsort((batch.facts["sample"], batch.facts["group_id"])))
    batch.attach_from(asked, frozenset({FEATURES}), key="group_id")
    return batch
