"""A tokenizer, a policy whose turns have a given length, and its engine, for ``benchmarks.agent_overlap``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verl_like.backends.base import RolloutEngine
from verl_like.environments.codec import ModelCodec
from verl_like.environments.parsers import hermes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROOT = Path(__file__).parents[1]
VOCABULARY = 4096
HIDDEN, HEADS = 64, 2


def text() -> str:
    """Return the pages of the documentation."""
    return "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))


def tokenizer(folder: str) -> PreTrainedTokenizerBase:
    """Load a tokenizer with a chat template, or train a byte-level BPE on :func:`text` if no folder is named."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    from recipes.small_chat import CHAT_TEMPLATE, SPECIAL_TOKENS

    if folder:
        loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
        return loaded
    core = Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        [text()],
        trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(SPECIAL_TOKENS), initial_alphabet=alphabet),
    )
    found = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unk>",
        additional_special_tokens=list(SPECIAL_TOKENS[3:]),
    )
    found.chat_template = CHAT_TEMPLATE
    return found


def write_model(
    folder: Path, tokenizer: PreTrainedTokenizerBase, *, turn_tokens: int, layers: int, max_tokens: int
) -> None:
    """Write a model whose turns are always the same ``turn_tokens`` tokens; the last one ends the turn.

    It computes as much as any other model of its size, but the next token depends only on the last one. The end of the
    generation prompt begins a chain of tokens of the documentation.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    prompt: Any = tokenizer.apply_chat_template(
        [{"role": "user", "content": "a"}], tokenize=False, add_generation_prompt=True
    )
    first = tokenizer.encode(prompt, add_special_tokens=False)[-1]
    words = dict.fromkeys(tokenizer.encode(text(), add_special_tokens=False))
    words.pop(first, None)
    assert tokenizer.eos_token_id is not None, "the tokenizer has no end token"
    chain = [first, *list(words)[: turn_tokens - 1], int(tokenizer.eos_token_id)]
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=3 * HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HIDDEN // HEADS,
        max_position_embeddings=max_tokens,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model: Any = Qwen3ForCausalLM(config)
    embeddings = torch.randn(len(tokenizer), HIDDEN, generator=torch.Generator().manual_seed(0))
    heads = torch.zeros_like(embeddings)
    heads[chain[1:]] = embeddings[chain[:-1]]
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(embeddings)
        model.get_output_embeddings().weight.copy_(heads)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def engine(folder: Path, *, max_tokens: int, num_seqs: int, cache_gib: float) -> Iterator[RolloutEngine]:
    """Yield vLLM in this process, without weights; the variables of ``rollout_environment`` must be set."""
    import torch.distributed as dist

    from verl_like.backends.rollout import rollout_engine
    from verl_like.config.schema import ModelConfig, RolloutConfig

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield rollout_engine(
        "vllm",
        model_path=str(folder),
        tokenizer_path="",
        model=ModelConfig(path=str(folder)),
        rollout=RolloutConfig(
            max_num_seqs=str(num_seqs), max_num_batched_tokens=max(max_tokens, 8192), kv_cache_memory_gib=cache_gib
        ),
        max_model_len=max_tokens,
        device="cpu",
        seed=1,
        run_id="agent_overlap",
    )
    dist.destroy_process_group()


def sync(engine: RolloutEngine, folder: Path, version: int) -> None:
    """Load the weights, which empties the prefix cache."""
    from safetensors.torch import load_file

    engine.begin_sync(version)
    engine.load(load_file(folder / "model.safetensors").items())
    engine.finish_sync()
    engine.wake()


def codec(tokenizer: PreTrainedTokenizerBase) -> ModelCodec:
    assert tokenizer.eos_token_id is not None, "the tokenizer has no end token"
    return ModelCodec(tokenizer, end_ids=[int(tokenizer.eos_token_id)], parser=hermes, template_kwargs={})


class Passages:
    """Passages of the documentation, which is repeated; those of other starts differ."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._ids = np.array(tokenizer.encode(text(), add_special_tokens=False))

    def of(self, num_tokens: int, *, start: int) -> str:
        """Return a text of so many tokens."""
        chosen: list[int] = self._ids[np.arange(start, start + num_tokens) % len(self._ids)].tolist()
        return str(self._tokenizer.decode(chosen))
