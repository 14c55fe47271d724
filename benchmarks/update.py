"""Compare updates with a bare loop: ``python -m benchmarks.update [--sizes 2M 30M 110M]``.

Ours is the engine and the learner of an actor, with the defaults of a run on two workers. The baseline is a loop of
forward, backward and step (``benchmarks/_bare_loop.py``) on the same packed rows: FSDP2, DDP, and one process of two
threads, each with its best micro-batch. All have the faster library for each matrix product, and alternate. Then padded
rows are compared with the same rows packed. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks._machine import print_result, use_machine_libraries
from benchmarks._teams import TIMEOUT_S, Job, Team, median_ratio, teams
from verl_like.backends.allocator import allocator_environment

ROUNDS = 5
MICRO_BATCHES = (512, 1024, 2048, 16_384)
BARE = {"fsdp2": 2, "ddp": 2, "single": 1}  # ranks
OURS = {"own": 2, "own_padded": 2}
PROMPT, SHORTEST, LONGEST = 16, 16, 240


@dataclass(frozen=True, kw_only=True)
class Size:
    """Shape of a Qwen3 with tied embeddings, and the rows of an update, of 16 + 128 tokens on average."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    vocabulary: int
    rows: int


SIZES = {
    "2M": Size(hidden=192, intermediate=512, layers=5, heads=6, vocabulary=1024, rows=64),
    "30M": Size(hidden=512, intermediate=1408, layers=8, heads=8, vocabulary=8192, rows=16),
    "110M": Size(hidden=768, intermediate=2560, layers=11, heads=12, vocabulary=32_000, rows=16),
}


def write_model(folder: Path, size: Size) -> int:
    """Write the model, and return its number of parameters."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads // 2,
        head_dim=size.hidden // size.heads,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    return int(model.num_parameters())


def rows(size: Size, rank: int, ranks: int, *, is_half_empty: bool) -> Any:
    """Return this rank's rows."""
    from verl_like.protocol import DataProto, Ragged

    rng = np.random.default_rng(0)
    lengths = rng.integers(SHORTEST, LONGEST + 1, size.rows)
    if is_half_empty:  # of seven rows, three have 256 tokens with their prompts and four have 32: 128 on average
        lengths = np.where(np.arange(size.rows) % 7 < 3, LONGEST, SHORTEST)
    # Dealing the sorted lengths in a snake order balances the tokens of the ranks as well as possible.
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[
        np.sort([row for i, row in enumerate(order) if (i % (2 * ranks)) in (rank, 2 * ranks - 1 - rank)])
    ]

    def column(dtype: str, counts: Any, draw: Callable[[int], Any]) -> Ragged:
        return Ragged.from_rows([np.asarray(draw(int(count))).astype(dtype) for count in counts], dtype)

    ids = lambda count: rng.integers(0, size.vocabulary, count)  # noqa: E731
    return DataProto(
        {
            "prompt_ids": column("int32", [PROMPT] * len(lengths), ids),
            "response_ids": column("int32", lengths, ids),
            "response_mask": column("bool", lengths, np.ones),
            "old_log_probs": column("float32", lengths, lambda count: -7 - rng.random(count)),
            "advantages": column("float32", lengths, rng.standard_normal),
        }
    )


def own_update(path: Path, table: Any, *, is_padded: bool) -> Callable[[int], None]:
    """Return an actor's update; a micro-batch of 0 selects its default."""
    from dataclasses import replace

    import torch

    from verl_like.algorithms.actor_loss import ActorLoss
    from verl_like.backends.base import EngineSettings
    from verl_like.backends.fsdp.policy import FsdpPolicy
    from verl_like.config.schema import Config, ModelConfig

    config = Config()
    settings = EngineSettings(
        model=ModelConfig(path=str(path), remove_padding=not is_padded),
        fsdp=config.actor.fsdp,
        device=torch.device("cpu"),
        max_tokens_per_micro_batch=config.actor.max_tokens_per_micro_batch,
    )
    engine = FsdpPolicy(settings)
    learner = engine.learner(config.actor.optim, total_updates=0, max_response_tokens=LONGEST)

    def update(max_tokens: int) -> None:
        budget = str(max_tokens) if max_tokens else settings.max_tokens_per_micro_batch
        engine.settings = replace(settings, max_tokens_per_micro_batch=budget)
        learner.update(table, ActorLoss(config.actor))

    return update


@contextmanager
def updating(rank: int, name: str, ranks: int, store: Path, path: Path, size: Size) -> Iterator[Job]:
    """Yield a rank of a contender that runs updates with a given micro-batch, on half-empty rows or not."""
    import torch
    import torch.distributed as dist

    from benchmarks._bare_loop import bare_update

    torch.manual_seed(0)
    torch.set_num_threads(2 // ranks)
    use_machine_libraries()
    timeout = timedelta(seconds=TIMEOUT_S)
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(store), ranks), rank=rank, world_size=ranks, timeout=timeout
    )
    made: dict[bool, Callable[[int], None]] = {}

    def update(order: tuple[int, bool]) -> None:
        max_tokens, is_half_empty = order
        if is_half_empty not in made:
            made.clear()
            table = rows(size, rank, ranks, is_half_empty=is_half_empty)
            is_bare = name in BARE
            made[is_half_empty] = (
                bare_update(name, path, table) if is_bare else own_update(path, table, is_padded="padded" in name)
            )
        made[is_half_empty](max_tokens)
        dist.barrier()

    yield update
    dist.destroy_process_group()


def measure(path: Path, size: Size) -> dict[str, Any]:
    tokens = int(rows(size, 0, 1, is_half_empty=False).ragged("response_ids").lengths.sum()) + size.rows * PROMPT
    contenders = {
        name: (ranks, updating, (name, ranks, path.parent / f"store-{path.name}-{name}", path, size))
        for name, ranks in {**BARE, **OURS}.items()
    }
    with teams(contenders) as found:
        best = {name: _best_micro_batch(found[name]) for name in BARE} | {"own": 0}
        found["own"].seconds((0, False))  # creates the optimiser's state
        rounds = [{name: found[name].seconds((best[name], False)) for name in best} for _ in range(ROUNDS)]
        seconds = {name: median(turn[name] for turn in rounds) for name in best}
        bare = min(BARE, key=lambda name: seconds[name])
        for name in OURS:
            found[name].seconds((0, True))
        halves = [{name: found[name].seconds((0, True)) for name in OURS} for _ in range(ROUNDS)]
    return {
        "fraction_of_bare_torch": round(median_ratio(rounds, bare, "own"), 3),
        "tokens_per_s": round(tokens / seconds["own"]),
        "bare": bare,
        "bare_tokens_per_s": {name: round(tokens / seconds[name]) for name in BARE},
        "bare_micro_batch": {name: best[name] for name in BARE},
        "remove_padding_speedup": round(median_ratio(halves, "own_padded", "own"), 2),
    }


def _best_micro_batch(team: Team) -> int:
    team.seconds((MICRO_BATCHES[0], False))
    return min(MICRO_BATCHES, key=lambda max_tokens: team.seconds((max_tokens, False)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    names = parser.parse_args().sizes
    os.environ |= {"OMP_NUM_THREADS": "2", **allocator_environment()}  # as in workers
    by_size = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder) / name
            parameters = write_model(path, SIZES[name])
            by_size[name] = {"parameters": parameters, **measure(path, SIZES[name])}
            print(json.dumps({name: by_size[name]}), flush=True)
    print_result(
        {
            key: min(found[key] for found in by_size.values())
            for key in ("fraction_of_bare_torch", "remove_padding_speedup")
        }
        | {"by_size": by_size}
    )


if __name__ == "__main__":
    main()
