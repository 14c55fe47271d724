"""A small model with a chat template for the recipes that train from random weights."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from recipes.arithmetic.model import small_qwen3
from verl_like.imports import importing

with importing():
    from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = ("<pad>", "<end>", "<unk>", "<user>", "<assistant>", "<tool>")
# A message is its role's token, its text and the end token. Calls are written as Hermes and Qwen write them.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
<{{ message.role }}>{{ message.content }}
{%- for call in message.tool_calls or [] -%}
<tool_call>{{ call.function | tojson }}</tool_call>
{%- endfor -%}
<end>
{%- endfor -%}
{%- if add_generation_prompt -%}<assistant>{%- endif -%}"""


def chat_tokenizer(tokens: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer of these tokens; of several that match, the longest is taken. Decoding joins them."""
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys([*SPECIAL_TOKENS, *tokens]))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    pattern = "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(f"{pattern}|."), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unk>",
        additional_special_tokens=list(SPECIAL_TOKENS[3:]),
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def write_small_model(out: Path, tokens: Sequence[str], seed: int) -> int:
    """Write a model and a tokenizer of these tokens to ``out``; return the number of parameters."""
    tokenizer = chat_tokenizer(tokens)
    model = small_qwen3(tokenizer, seed)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return sum(parameter.numel() for parameter in model.parameters())


def prepare(
    argv: list[str] | None, write_data: Callable[[Path, int], dict[str, int]], write_model: Callable[[Path, int], int]
) -> None:
    """Write data and model where the command line says, and print what was written."""
    parser = argparse.ArgumentParser(description="Make the data and the model of the recipe.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the folders data and init")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split, the supervised rows and the weights")
    args = parser.parse_args(argv)
    rows = write_data(args.out / "data", args.seed)
    print(f"{args.out / 'data'}: " + ", ".join(f"{name}.parquet {count} rows" for name, count in rows.items()))
    print(f"{args.out / 'init'}: {write_model(args.out / 'init', args.seed):,} parameters")
