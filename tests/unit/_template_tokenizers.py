"""Tokenizers for the chat templates of the trl wheel: bytes, and the marks that the template contains as tokens."""

from __future__ import annotations

import re
from collections.abc import Collection

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_MARK = re.compile(r"<[^<>\s{}'\"]{1,40}>|\[/?[A-Z_]+\]")


def byte_tokenizer(template: str, *, marks: Collection[str] = ()) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose special tokens are the marks in the template, and ``marks``."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    found = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=template
    )
    found.add_tokens(sorted({*_MARK.findall(template), *marks}), special_tokens=True)
    return found
