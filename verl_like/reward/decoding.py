"""Decode token ids to text, in processes that have no other use for transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

if TYPE_CHECKING:  # its import takes seconds, and half of a scorer host's memory
    from transformers import PreTrainedTokenizerBase


class Decoder:
    """Decodes as the policy's tokenizer does. It is made on the driver and sent to the scorer hosts.

    Nearly every tokenizer decodes with the ``tokenizers`` library, which is then the only import. A tokenizer with its
    own decoding is loaded on the host and imports transformers there.

    Args:
        trust_remote_code: whether loading it may run code of the tokenizer's folder.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, trust_remote_code: bool) -> None:
        self._library = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()) if _is_plain(tokenizer) else None
        self._path, self._trust_remote_code = tokenizer.name_or_path, trust_remote_code
        self._own: Any = None

    def load(self) -> None:
        """Prepare for decoding; called in the process that decodes."""
        if self._library is None:
            from verl_like.data.templates import load_tokenizer

            self._own = load_tokenizer(self._path, self._trust_remote_code)

    def texts(self, responses: Sequence[list[int]]) -> list[str]:
        """Return the text of the responses without special tokens."""
        tokenizer = self._library or self._own
        return [tokenizer.decode(ids, skip_special_tokens=True) for ids in responses]

    def token_texts(self, ids: list[int]) -> list[str]:
        """Return the text that each token adds, special tokens included; a character that several tokens make is
        the last one's.
        """
        if self._library is None:
            return [str(self._own.decode([token])) for token in ids]
        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(self._library, token) or "" for token in ids]


def _is_plain(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether it decodes exactly as the library: no own decode method and no clean-up afterwards."""
    from transformers import PreTrainedTokenizerFast

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return False
    if any(
        getattr(type(tokenizer), name) is not getattr(PreTrainedTokenizerFast, name) for name in ("decode", "_decode")
    ):
        return False
    if type(tokenizer.backend_tokenizer.model).__name__ == "BPE":  # transformers 5 needs an extra flag
        return not tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output
    return not tokenizer.clean_up_tokenization_spaces
