"""Responses as text: what a scorer host decodes is what the tokenizer decodes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from recipes.arithmetic.model import character_tokenizer
from tests.e2e.conftest import SHARED_DATA
from verl_like.data.templates import load_tokenizer
from verl_like.reward.decoding import Decoder

WORDS = {word: i for i, word in enumerate(["[UNK]", "[PAD]", "a", "##b", ".", "!", "do", "n't", "12"])}
IDS = [[2, 3, 4], [6, 7, 5, 1, 1], [], [8, 0, 2], [0, 1, 2]]


def word_pieces(**options: bool) -> PreTrainedTokenizerBase:
    library = Tokenizer(models.WordPiece(WORDS, unk_token="[UNK]"))
    library.pre_tokenizer, library.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece(cleanup=False)
    return PreTrainedTokenizerFast(tokenizer_object=library, unk_token="[UNK]", pad_token="[PAD]", **options)


def byte_pairs(
    kind: type[PreTrainedTokenizerFast] = PreTrainedTokenizerFast, **options: bool
) -> PreTrainedTokenizerBase:
    library = Tokenizer(
        models.BPE({word: i for i, word in enumerate(["a", "Ġ", ".", "<end>", "b", "c", "d", "e", "f"])}, [])
    )
    library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return kind(tokenizer_object=library, eos_token="<end>", **options)


CORRUPTING = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
TOKENIZERS = {
    "characters": character_tokenizer(),
    "word pieces": word_pieces(clean_up_tokenization_spaces=False),
    "word pieces, cleaned up": word_pieces(clean_up_tokenization_spaces=True),
    "byte pairs": byte_pairs(clean_up_tokenization_spaces=True),
    "byte pairs, cleaned up": byte_pairs(clean_up_tokenization_spaces=True, **{CORRUPTING: True}),
}


def sent(tokenizer: PreTrainedTokenizerBase) -> Decoder:
    """A decoder as a scorer host receives it."""
    decoder: Decoder = pickle.loads(pickle.dumps(Decoder(tokenizer, trust_remote_code=False)))
    decoder.load()
    return decoder


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_responses_become_the_text_that_the_tokenizer_makes(kind: str, tmp_path: Path) -> None:
    TOKENIZERS[kind].save_pretrained(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    texts = sent(tokenizer).texts(IDS)
    assert texts == tokenizer.batch_decode(IDS, skip_special_tokens=True)
    assert all(texts[i] for i in (0, 1, 3)) and texts[2] == ""


def test_cleaning_up_makes_a_difference() -> None:
    """Else the test above could not fail."""
    for kind in ("word pieces", "byte pairs"):
        plain, cleaned = (TOKENIZERS[name].batch_decode(IDS) for name in (kind, f"{kind}, cleaned up"))
        assert plain != cleaned


def test_a_tokenizer_that_decodes_in_its_own_way_is_asked_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = TOKENIZERS["characters"]
    tokenizer.save_pretrained(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))

    class Shouting(type(tokenizer)):  # type: ignore[misc]
        def _decode(self, *args: object, **kwargs: object) -> str:
            return f"{super()._decode(*args, **kwargs)}!"

    tokenizer.__class__ = Shouting
    monkeypatch.setattr("verl_like.data.templates.load_tokenizer", lambda path, trust: {str(tmp_path): tokenizer}[path])
    assert sent(tokenizer).texts([[5]]) == [tokenizer.decode([5])] and tokenizer.decode([5]).endswith("!")


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason=f"{SHARED_DATA} is not here")
def test_a_published_tokenizer_decodes_the_same() -> None:
    tokenizer = load_tokenizer(str(SHARED_DATA / "tokenizers/qwen3"))
    ids = [list(range(first, first + 7)) for first in range(0, len(tokenizer) - 7, 97)]
    assert sent(tokenizer).texts(ids) == tokenizer.batch_decode(ids, skip_special_tokens=True)


@pytest.mark.processes
def test_a_scorer_host_decodes_without_transformers() -> None:
    """Importing transformers would take a scorer host seconds and half of its memory."""
    sent_bytes = pickle.dumps(Decoder(TOKENIZERS["characters"], trust_remote_code=False))
    code = (
        "import pickle, sys, verl_like.reward.host\n"
        f"decoder = pickle.loads({sent_bytes!r})\n"
        "decoder.load()\n"
        "assert decoder.texts([[5]])[0]\n"
        "assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
