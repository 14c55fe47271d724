"""What is planned for a model's passes, against what torch counts as it runs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks._allocated import allocated
from tests.unit._fsdp_ranks import PolicyLoss, build_engine
from tests.unit._rank_processes import join_ranks, leave_ranks
from verl_like.backends.fsdp.engine import recomputed_layers
from verl_like.config.schema import FsdpConfig, LoraConfig, ModelConfig, OptimConfig
from verl_like.plan.activations import Activations
from verl_like.plan.memory import Sharded
from verl_like.plan.one_pass import Pass
from verl_like.plan.shape import model_shape
from verl_like.protocol import DataProto, Ragged

MAX_ERROR = 0.12
NOTHING = Activations(held=0.0, last=0.0, reduced=0.0, first=0.0)
NUM_ROWS, PROMPT_TOKENS, RESPONSE_TOKENS = 8, 32, 96
BUDGET_MIB = 16  # of 47 MiB in the case of logits


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


def rows(vocab_size: int, *, rows_per_prompt: int) -> DataProto:
    """Return rows of one length, as a plan assumes."""
    rng = np.random.default_rng(0)

    def ids(length: int) -> Ragged:
        return Ragged.from_rows([rng.integers(3, vocab_size, length).tolist() for _ in range(NUM_ROWS)], "int32")

    responses = ids(RESPONSE_TOKENS)
    size = NUM_ROWS * RESPONSE_TOKENS
    return DataProto(
        {
            "prompt_ids": ids(PROMPT_TOKENS).take(np.arange(NUM_ROWS) // rows_per_prompt * rows_per_prompt),
            "response_ids": responses,
            "response_mask": Ragged(np.ones(size, bool), responses.offsets),
            "advantages": Ragged(rng.normal(size=size).astype(np.float32), responses.offsets),
            "uid": [str(index) for index in range(NUM_ROWS)],
        }
    )


# What decides the peak of an update: activations of all layers; gradients; logits.
CASES = {
    "activations": {"layers": 6, "vocab_size": 512, "checkpointing": "false", "passes": 1},
    "several-passes": {"layers": 6, "vocab_size": 512, "checkpointing": "false", "passes": 4},
    "recomputed": {"layers": 6, "vocab_size": 512, "checkpointing": "true", "passes": 1},
    "logits": {"layers": 2, "vocab_size": 16_000, "checkpointing": "true", "passes": 1},
    "shared-prompts": {"layers": 6, "vocab_size": 512, "checkpointing": "false", "passes": 1, "rows_per_prompt": 4},
    "adapters": {"layers": 6, "vocab_size": 512, "checkpointing": "false", "passes": 1, "lora_rank": 8},
    "adapters-recomputed": {"layers": 6, "vocab_size": 512, "checkpointing": "true", "passes": 4, "lora_rank": 8},
    "large-layers": {"layers": 4, "vocab_size": 4_000, "checkpointing": "true", "passes": 1, "hidden_size": 640},
}


QUICK = (("activations", "all"), ("adapters-recomputed", "1"), ("logits", "1"), ("shared-prompts", "all"))


@pytest.mark.parametrize(
    ("case", "shard_size"),
    [
        pytest.param(case, shard_size, marks=() if (case, shard_size) in QUICK else pytest.mark.slow)
        for case in CASES
        for shard_size in ("all", "1")
    ],
)
def test_the_peaks_of_passes_are_those_that_torch_counts(case: str, shard_size: str, tmp_path: Path) -> None:
    of = {"hidden_size": 256, **CASES[case]}
    hidden_size, vocab_size, passes = int(of["hidden_size"]), int(of["vocab_size"]), int(of["passes"])
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=int(of["layers"]),
        num_attention_heads=hidden_size // 64,
        num_key_value_heads=hidden_size // 128,
        head_dim=64,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    checkpointing = str(of["checkpointing"])
    rows_per_prompt = int(of.get("rows_per_prompt", 1))
    tokens = NUM_ROWS * (PROMPT_TOKENS // rows_per_prompt + RESPONSE_TOKENS) // passes
    fsdp, lora = FsdpConfig(shard_size=shard_size), LoraConfig(rank=int(of.get("lora_rank", 0)))
    engine = build_engine(
        tmp_path,
        max_tokens=tokens,
        model={"gradient_checkpointing": checkpointing, "lora": lora},
        fsdp=fsdp,
        log_prob_chunk_mib=BUDGET_MIB,
    )
    learner = engine.learner(OptimConfig(), total_updates=10, max_response_tokens=RESPONSE_TOKENS)
    table = rows(vocab_size, rows_per_prompt=rows_per_prompt)
    learner.update(table, PolicyLoss())  # the optimiser's state comes with the first

    shape = model_shape(str(tmp_path), ModelConfig(path=str(tmp_path), lora=lora))
    is_cut, has_adapters = shard_size == "all", lora.rank > 0
    sharded = Sharded(
        shape=shape, ranks=1, itemsize=4, is_gpu=False, fsdp=fsdp, is_cut=is_cut, has_adapters=has_adapters
    )
    run = Pass(
        count=passes,
        tokens=tokens,
        response_tokens=NUM_ROWS * RESPONSE_TOKENS // passes,
        logits_budget=BUDGET_MIB * 2**20,
        learns=True,
        recomputed=recomputed_layers(checkpointing, torch.device("cpu"), shape.num_layers),
        shared_keys=NUM_ROWS * (PROMPT_TOKENS + RESPONSE_TOKENS) if rows_per_prompt > 1 else 0,
    )
    update = allocated(lambda: learner.update(table, PolicyLoss()))
    assert sum(sharded.update(run).values()) == pytest.approx(update, rel=MAX_ERROR)
    forward = allocated(lambda: engine.forward_log_probs(table, temperature=1.0))
    assert sum(sharded.forward(run).values()) == pytest.approx(forward, rel=MAX_ERROR)
    state = [value for of in learner.optimizer.state.values() for value in of.values() if value.ndim]
    assert sharded.optimizer == sum(value.numel() * value.itemsize for value in state)
    assert sharded.weights == sum(p.numel() * p.itemsize for p in engine.module.parameters())
    assert torch.get_default_dtype() == torch.float32


def test_kept_and_prefetched_layers_are_in_memory_in_addition_to_the_current_one(tmp_path: Path) -> None:
    """Of 12 layers of 12 million parameters each, in bfloat16."""
    config = Qwen3Config(num_hidden_layers=12, hidden_size=1024, intermediate_size=2048, vocab_size=512)
    config.save_pretrained(tmp_path)
    shape = model_shape(str(tmp_path), ModelConfig(path=str(tmp_path)))
    run = Pass(count=1, tokens=8, response_tokens=8, logits_budget=2**20, learns=True, recomputed=shape.num_layers)

    def layers(kept: str, ahead: int) -> tuple[float, float]:
        """Return the layers in memory during a pass, and after the last layer."""
        fsdp = FsdpConfig(num_kept_layers=kept, num_prefetched_layers=ahead)
        sharded = Sharded(shape=shape, ranks=8, itemsize=2, is_gpu=True, fsdp=fsdp)
        after = next(sharded._moments(run, NOTHING))["gathered"]
        return tuple((of - sharded.root) / (2 * shape.num_layer_parameters) for of in (sharded.gathered, after))

    assert layers("0", 0) == (2, 0)
    assert layers("1", 0) == (2, 1)
    assert layers("0", 3) == (4, 0)
    assert layers("5", 3) == (5, 5)
    assert layers("all", 99) == (12, 12)
