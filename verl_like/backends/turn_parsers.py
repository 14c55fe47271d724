"""Load vLLM's parsers of tool calls and reasoning; vLLM is imported only when they are requested."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from verl_like.environments.parsers import OtherParsers
from verl_like.imports import importing


def vllm_parsers(tokenizer: PreTrainedTokenizerBase, template_kwargs: Mapping[str, Any]) -> OtherParsers:
    """Return the parsers of the installed vLLM; the import takes about 5 s.

    Args:
        template_kwargs: ``data.chat_template_kwargs``.

    Raises:
        ValueError: vLLM is not installed, or cannot be imported.
    """
    if importlib.util.find_spec("vllm") is None:
        raise ValueError("vLLM, which has the other parsers, is not installed.")
    try:
        with importing():
            module = importlib.import_module("verl_like.backends.vllm.turn_parser")
    except ImportError as error:
        raise ValueError(f"vLLM, which has the other parsers, cannot be imported: {error}.") from error
    found: OtherParsers = module.VllmParsers(tokenizer, template_kwargs)
    return found
