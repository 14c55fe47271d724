"""Texts of single tokens: together they are the response, whatever bytes a token holds."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from verl_like.reward.decoding import Decoder


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with single bytes only, so that most characters take several tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator([], trainers.BpeTrainer(initial_alphabet=alphabet, special_tokens=["<end>"]))
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


@pytest.mark.parametrize("text", ["plain", "für 3 €", "日本語 🙂", "a\n\tb", ""])
def test_the_texts_of_the_tokens_are_the_response(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    decoder = Decoder(tokenizer, trust_remote_code=False)
    ids = tokenizer.encode(text)
    texts = decoder.token_texts(ids)
    assert len(texts) == len(ids) and "".join(texts) == text


def test_a_special_token_is_shown(tokenizer: PreTrainedTokenizerFast) -> None:
    decoder = Decoder(tokenizer, trust_remote_code=False)
    assert decoder.token_texts([*tokenizer.encode("a"), tokenizer.eos_token_id]) == ["a", "<end>"]
