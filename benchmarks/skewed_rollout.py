"""Rollouts of skewed lengths, dealt in advance and by a queue: ``python -m benchmarks.skewed_rollout``.

Two engines of one thread run on the real stack, with groups of eight responses. *One long group*: twelve prompts, one
of them with responses eight times as long; each engine runs one group at a time. *Long tail*: 32 prompts with lengths
drawn from a lognormal distribution; two groups at a time. Each round shuffles the prompts and generates for them three
times: dealt in advance, dealt by a queue that has never seen the prompts, and dealt by a queue that knows how long
their responses were. The model computes as much as any other of its size, but its next token depends only on the last
one and counts up the vocabulary to the end token. So a prompt determines how long its responses are. Prints one JSON
object as its last line; ``speedup`` is that of the one long group with known lengths.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks._machine import print_result
from benchmarks._prompts import bare_prompts
from benchmarks.update import SIZES, write_model
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.data.prompts import Prompt
from verl_like.runs.launch import Launcher
from verl_like.training.build import build_workers
from verl_like.training.generation import generate, put_prompts, train_sampling
from verl_like.workers.groups import RolloutGroup

ROUNDS = 5
SAMPLES, PROMPT_TOKENS, MAX_RESPONSE_TOKENS = 8, 16, 512
SIZE = SIZES["2M"]
END = SIZE.vocabulary - 1

ONE_LONG_GROUP = [512] + [64] * 11
LONG_TAIL = np.random.default_rng(0).lognormal(np.log(60), 0.9, 32).clip(8, 512).astype(int).tolist()


def write_counting_model(folder: Path) -> None:
    """Write a model that counts from the last token up to the end token."""
    import torch
    from transformers import AutoModelForCausalLM

    write_model(folder, SIZE)
    model = AutoModelForCausalLM.from_pretrained(folder, tie_word_embeddings=False)
    with torch.no_grad():
        tokens = torch.randn(SIZE.vocabulary, SIZE.hidden, generator=torch.Generator().manual_seed(0))
        model.get_input_embeddings().weight.copy_(tokens)
        model.get_output_embeddings().weight.copy_(0.3 * tokens.roll(1, 0))  # the next token is the most likely one
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    model.generation_config.eos_token_id = model.config.eos_token_id = END
    model.save_pretrained(folder)


def prompts_of(lengths: list[int]) -> list[Prompt]:
    """Make prompts whose responses have so many tokens, including the end token."""
    return bare_prompts([*range(PROMPT_TOKENS - 1), END - length] for length in lengths)


def measure(lengths: list[int], *, max_num_seqs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        write_counting_model(Path(folder) / "model")
        config = Config()
        config.model.path = str(Path(folder) / "model")
        config.data.max_prompt_length, config.data.max_response_length = PROMPT_TOKENS, MAX_RESPONSE_TOKENS
        config.rollout.n, config.rollout.max_num_seqs = SAMPLES, str(max_num_seqs)
        config.cluster.device, config.cluster.workers_per_node, config.cluster.threads_per_worker = "cpu", 2, 1
        config.trainer.output_dir = folder
        with current(Launcher).launched(config, generates=True) as hosts:
            workers = build_workers(hosts, config, roles=frozenset({"actor", "rollout"}))
            workers.wait_built(timeout_s=config.cluster.start_timeout_s)
            ahead, knowing = (
                RolloutGroup(workers, config.rollout, assigns_by_queue=queued) for queued in (False, True)
            )
            version = ahead.sync().version
            prompts = prompts_of(lengths)

            def seconds(rollout: RolloutGroup, order: list[int]) -> float:
                start = time.perf_counter()
                batch = generate(
                    put_prompts([prompts[row] for row in order]),
                    rollout=rollout,
                    begin=None,
                    n=SAMPLES,
                    sampling=train_sampling(config),
                    step=1,
                    version=version,
                )
                taken = time.perf_counter() - start
                expected = np.repeat(np.array(lengths)[order], SAMPLES)
                assert (batch.facts["response_tokens"] == expected).all(), "responses are not as long as they were made"
                return taken

            def contenders() -> dict[str, RolloutGroup]:
                new = RolloutGroup(workers, config.rollout, assigns_by_queue=True)
                return {"ahead": ahead, "queue_unseen": new, "queue": knowing}

            rounds = timed(contenders, seconds, len(lengths))
    return {
        "speedup": round(median(turn["ahead"] / turn["queue"] for turn in rounds), 3),
        "speedup_unseen": round(median(turn["ahead"] / turn["queue_unseen"] for turn in rounds), 3),
        "s": {name: round(median(turn[name] for turn in rounds), 2) for name in rounds[0]},
    }


def timed(
    contenders: Callable[[], dict[str, RolloutGroup]],
    seconds: Callable[[RolloutGroup, list[int]], float],
    num_prompts: int,
) -> list[dict[str, float]]:
    """Return the seconds of each contender in each round, after a warm-up round that also reveals the lengths."""
    rng = np.random.default_rng(1)
    for rollout in contenders().values():
        seconds(rollout, list(range(num_prompts)))
    rounds = []
    for _ in range(ROUNDS):
        order = rng.permutation(num_prompts).tolist()
        rounds.append({name: seconds(rollout, order) for name, rollout in contenders().items()})
    return rounds


def main() -> None:
    found = measure(ONE_LONG_GROUP, max_num_seqs=SAMPLES)
    print(json.dumps({"one_long_group": found}), flush=True)
    tail = measure(LONG_TAIL, max_num_seqs=2 * SAMPLES)
    print_result({**found, "long_tail": tail})


if __name__ == "__main__":
    main()
