"""Measure where the experts of a mixture are kept: ``python -m benchmarks.experts``.

Two ranks update a Qwen3-MoE (4 layers, 8 of 64 experts, 53 million parameters) in three layouts, which alternate:
``gathered``, FSDP's default, which gathers a whole layer; ``own_group``, the experts of a layer in an FSDP group by
themselves; ``parallel``, experts that stay on their ranks (``fsdp.expert_parallel``). Backward recomputes the layers,
as on GPUs, and gradients are reduced after each pass, as for models too large to accumulate them whole. Then the
experts of one layer are computed by transformers' loop, and by grouped products as in every layout. Prints one JSON
object as its last line:

- ``peak_mib``: for each layout, the peak memory that torch allocates in an update above the level before it, on the
  rank with the most;
- ``gradient_mib``, ``state_mib``: memory of gradients, which is part of that peak, and of weights and moments on a
  rank, the same in each layout;
- ``update_s``: for each layout, the median seconds of an update;
- ``exchanged_mib``: states of tokens that go into and out of a rank's exchanges in an update with ``parallel``, those
  for its own experts included;
- ``loop_s``, ``grouped_s``: seconds of a forward and a backward pass of 512 tokens through one layer's experts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._machine import print_result, use_machine_libraries
from benchmarks._teams import TIMEOUT_S, Job, teams
from benchmarks.update import LONGEST, Size, rows

LAYOUTS = ("gathered", "own_group", "parallel")
RANKS, ROUNDS, MAX_TOKENS = 2, 3, 512
SIZE = Size(hidden=512, intermediate=128, layers=4, heads=8, vocabulary=1024, rows=16)
NUM_EXPERTS, TOP_K, NUM_TOKENS = 64, 8, 512


def config_of_model() -> Any:
    from transformers import Qwen3MoeConfig

    return Qwen3MoeConfig(
        vocab_size=SIZE.vocabulary,
        hidden_size=SIZE.hidden,
        intermediate_size=SIZE.intermediate,
        moe_intermediate_size=SIZE.intermediate,
        num_hidden_layers=SIZE.layers,
        num_attention_heads=SIZE.heads,
        num_key_value_heads=SIZE.heads // 2,
        head_dim=SIZE.hidden // SIZE.heads,
        num_experts=NUM_EXPERTS,
        num_experts_per_tok=TOP_K,
        norm_topk_prob=True,
    )


def write_model(folder: Path) -> None:
    import torch
    from transformers import Qwen3MoeForCausalLM

    torch.manual_seed(0)
    Qwen3MoeForCausalLM(config_of_model()).save_pretrained(folder)


@contextmanager
def updating(rank: int, layout: str, store: Path, path: Path) -> Iterator[Job]:
    """Yield a rank that updates the model, and returns what the order asks for."""
    import torch
    import torch.distributed as dist

    torch.manual_seed(0)
    torch.set_num_threads(1)
    use_machine_libraries()
    timeout = timedelta(seconds=TIMEOUT_S)
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(store), RANKS), rank=rank, world_size=RANKS, timeout=timeout
    )
    learner, update = _learner(layout, path, rank)

    def measure(order: str) -> float:
        from benchmarks._allocated import allocated, sent_states_held
        from verl_like.backends.fsdp.optim import local_shard

        if order == "peak":
            with sent_states_held():
                return allocated(update)
        if order == "state":
            shards = [local_shard(parameter) for parameter in learner.engine.module.parameters()]
            return 3.0 * sum(shard.nbytes for shard in shards)
        if order == "exchanged":
            with counted() as sizes:
                update()
            return float(sum(sizes))
        update()
        return 0.0

    yield measure
    dist.barrier()
    dist.destroy_process_group()


def _learner(layout: str, path: Path, rank: int) -> tuple[Any, Callable[[], object]]:
    import torch

    from verl_like.algorithms.actor_loss import ActorLoss
    from verl_like.backends.base import EngineSettings
    from verl_like.backends.fsdp import sharding
    from verl_like.backends.fsdp.policy import FsdpPolicy
    from verl_like.config.schema import Config, FsdpConfig, ModelConfig

    sharding.MAX_UNSHARDED_GRADIENT_BYTES = 0
    config = Config()
    settings = EngineSettings(
        model=ModelConfig(path=str(path), gradient_checkpointing="true"),  # as on GPUs
        fsdp=FsdpConfig(shard_size="all", expert_parallel=layout == "parallel"),
        device=torch.device("cpu"),
        max_tokens_per_micro_batch=str(MAX_TOKENS),
    )
    with experts_in_own_groups() if layout == "own_group" else nullcontext():
        engine = FsdpPolicy(settings)
    learner = engine.learner(config.actor.optim, total_updates=0, max_response_tokens=LONGEST)
    table = rows(SIZE, rank, RANKS, is_half_empty=False)
    return learner, lambda: learner.update(table, ActorLoss(config.actor))


@contextmanager
def experts_in_own_groups() -> Iterator[None]:
    """Make models that are sharded inside the context gather the experts of a layer by themselves."""
    from unittest.mock import patch

    from verl_like.backends.fsdp.expert_parallel import experts_of
    from verl_like.backends.fsdp.sharding import Sharding

    sharded = Sharding.__init__

    def in_more_groups(self: Any, module: Any, **arguments: Any) -> None:
        parts = [*experts_of(module), *module.decoder_layers()]  # inner modules first
        with patch.object(module, "decoder_layers", lambda: parts):
            sharded(self, module, **arguments)

    with patch.object(Sharding, "__init__", in_more_groups):
        yield


@contextmanager
def counted() -> Iterator[list[int]]:
    """Yield a list of the bytes that each exchange of states inside the context sends and receives."""
    from unittest.mock import patch

    from verl_like.backends.fsdp.expert_parallel import Exchange

    sizes: list[int] = []
    rows_of = Exchange.rows

    def seen(self: Exchange, states: Any, *arguments: Any) -> Any:
        found = rows_of(self, states, *arguments)
        sizes.append(states.nbytes + found.nbytes)
        return found

    with patch.object(Exchange, "rows", seen):
        yield sizes


def layouts(folder: Path) -> dict[str, Any]:
    members = {name: (RANKS, updating, (name, folder / f"store-{name}", folder / "model")) for name in LAYOUTS}
    seconds: dict[str, list[float]] = {name: [] for name in LAYOUTS}
    with teams(members) as found:
        for team in found.values():
            team.done("update")  # allocates the moments
        peaks = {name: max(team.done("peak")[1]) for name, team in found.items()}
        for _ in range(ROUNDS):
            for name, team in found.items():
                seconds[name].append(team.seconds("update"))
        state = max(found["gathered"].done("state")[1])
        exchanged = max(found["parallel"].done("exchanged")[1])
    return {
        "peak_mib": {name: round(peak / 2**20) for name, peak in peaks.items()},
        "gradient_mib": round(state / 3 / 2**20),
        "state_mib": round(state / 2**20),
        "update_s": {name: round(median(turns), 2) for name, turns in seconds.items()},
        "exchanged_mib": round(exchanged / 2**20),
    }


def one_layer() -> dict[str, float]:
    """Return the seconds of a pass through the experts of a layer, the better of three."""
    import torch
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    torch.manual_seed(0)
    experts = Qwen3MoeExperts(config_of_model())
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    states = torch.randn(NUM_TOKENS, SIZE.hidden, requires_grad=True)
    weights, chosen = torch.randn(NUM_TOKENS, NUM_EXPERTS).softmax(-1).topk(TOP_K)
    seconds: dict[str, list[float]] = {"eager": [], "grouped_mm": []}
    outputs = {}
    for _ in range(ROUNDS + 1):  # the first turn warms up
        for name, turns in seconds.items():
            experts.config._experts_implementation = name
            started = time.perf_counter()
            outputs[name] = experts(states, chosen, weights)
            outputs[name].sum().backward()
            turns.append(time.perf_counter() - started)
    torch.testing.assert_close(outputs["eager"], outputs["grouped_mm"], atol=1e-5, rtol=0)
    return {"loop_s": round(min(seconds["eager"]), 3), "grouped_s": round(min(seconds["grouped_mm"]), 3)}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder) / "model")
        print_result({**layouts(Path(folder)), **one_layer()})


if __name__ == "__main__":
    main()
