"""The section ``sft``: supervised training."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema.fields import option
from verl_like.config.section import Section


@dataclass(kw_only=True)
class SftConfig(Section):
    loss_on: str = option(
        "assistant",
        "Tokens that are learnt: the assistant's turns, of a conversation only the last, or all with the prompt's.",
        choices=("assistant", "last_turn", "all"),
    )
    val_generate: bool = option(
        False,
        "Also generate responses to the validation prompts and score them with the section reward, as train does in "
        "validation.",
    )
