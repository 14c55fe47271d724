"""Convert a row's prompt and response to the token ids that a reward model reads."""

from __future__ import annotations

import sys
from typing import Any

import jinja2
from transformers import AutoConfig, PreTrainedTokenizerBase

from verl_like.config.schema import Config
from verl_like.data.pairs import without_padding
from verl_like.data.templates import load_tokenizer
from verl_like.protocol import DataProto

COLUMNS = ("prompt_ids", "response_ids", "prompt_text", "reward_inputs")


class ScoreInputs:
    """Converts prompt and response to the reward model's tokens.

    If prompts are chats and its tokenizer has a chat template, that template renders them, with the response as the
    assistant's message. Otherwise a model with the policy's vocabulary reads the policy's ids unchanged, and a model
    with another vocabulary reads the same text.

    Args:
        config: ``reward.model``, ``model`` and ``data.apply_chat_template`` are read.

    Raises:
        ValueError: if there is no tokenizer, or fewer positions than ``reward.model.max_length``.
    """

    def __init__(self, config: Config) -> None:
        model = config.reward.model
        self._policy_tokenizer = load_tokenizer(config.model.tokenizer, config.model.trust_remote_code)
        self._tokenizer = scoring_tokenizer(
            model.path, trust_remote_code=config.model.trust_remote_code, option="reward.model.path"
        )
        self._is_chat = config.data.apply_chat_template and bool(self._tokenizer.chat_template)
        self._reads_ids = not self._is_chat and self._tokenizer.get_vocab() == self._policy_tokenizer.get_vocab()
        self._ends = frozenset(self._policy_tokenizer.all_special_ids)
        fields = (
            AutoConfig.from_pretrained(model.path, trust_remote_code=config.model.trust_remote_code)
            .get_text_config()
            .to_dict()
        )
        self._pad_id = fields.get("pad_token_id")
        # Families differ in the field's name, and some have no limit.
        positions = fields.get("max_position_embeddings") or fields.get("n_positions") or sys.maxsize
        self._max_length = model.max_length or positions
        if positions < model.max_length:
            raise ValueError(
                f"reward.model.max_length is {model.max_length}, but the model in {model.path} has {positions} "
                f"positions. Set reward.model.max_length={positions} or less, or 0."
            )

    def read(self, table: DataProto) -> tuple[list[list[int]], list[str]]:
        """Return (ids, reason why there are none) for each row; one of the two is empty.

        The longest sequence has ``reward.model.max_length`` tokens.
        """
        rows = len(table)
        if self._reads_ids:
            pairs = zip(table.ragged("prompt_ids"), table.ragged("response_ids"), strict=True)
            ids, messages = [[*prompt.tolist(), *response.tolist()] for prompt, response in pairs], [""] * rows
        else:
            texts, messages = self._texts(table)
            ids = (
                self._tokenizer(texts, add_special_tokens=not self._is_chat, verbose=False)["input_ids"] if rows else []
            )
            if not self._is_chat:
                ids = [
                    self._ended(own, response) for own, response in zip(ids, table.ragged("response_ids"), strict=True)
                ]
        ids = [[] if message else self._cut(own) for own, message in zip(ids, messages, strict=True)]
        empty = "the reward model's tokenizer gives no tokens for prompt and response"
        return ids, [message or ("" if own else empty) for own, message in zip(ids, messages, strict=True)]

    def _texts(self, table: DataProto) -> tuple[list[str], list[str]]:
        responses = decoded(self._policy_tokenizer, table)
        prompts: Any = table["prompt_text"]
        inputs: Any = table["reward_inputs"]
        texts, messages = [], []
        for prompt, row, response in zip(prompts, inputs, responses, strict=True):
            try:
                texts.append(self._rendered(row["messages"], response) if self._is_chat else prompt + response)
                messages.append("")
            except jinja2.TemplateError as error:
                texts.append("")
                messages.append(f"the reward model's chat template refused the prompt: {error}")
        return texts, messages

    def _rendered(self, prompt: list[dict[str, Any]] | str, response: str) -> str:
        chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        text: str = self._tokenizer.apply_chat_template(
            [*chat, {"role": "assistant", "content": response}], tokenize=False
        )
        return text

    def _ended(self, ids: list[int], response: Any) -> list[int]:
        """Append the reward model's end token to a response that ended; decoding dropped the policy's."""
        end = self._tokenizer.eos_token_id
        has_ended = len(response) > 0 and int(response[-1]) in self._ends
        return [*ids, end] if has_ended and end is not None and ids[-1:] != [end] else ids

    def _cut(self, ids: list[int]) -> list[int]:
        """Drop padding after the last real token, at which transformers reads the score, and excess tokens at the
        front.

        The end token is dropped too if it is also the padding token.
        """
        return without_padding(ids, self._pad_id)[-self._max_length :]


def scoring_tokenizer(path: str, *, trust_remote_code: bool, option: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model that scores.

    Raises:
        ValueError: if there is none in ``path``, which is the value of ``option``.
    """
    try:
        return load_tokenizer(path, trust_remote_code)
    except ValueError as error:
        raise ValueError(
            f"{option} is {path!r}, which has no tokenizer; expected one in the folder of the weights (below, read "
            f"{option} for model.path): {error}"
        ) from error


def decoded(tokenizer: PreTrainedTokenizerBase, table: DataProto) -> list[str]:
    """Return the rows' responses as text, without special tokens."""
    texts: list[str] = tokenizer.batch_decode(
        [ids.tolist() for ids in table.ragged("response_ids")], skip_special_tokens=True
    )
    return texts
