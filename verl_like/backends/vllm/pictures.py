"""Prompts with pictures: vLLM gets one token for each, repeats it itself, and must arrive at the ids of the trainer.

Checked against vllm 0.32, renderers/base.py.
"""

from __future__ import annotations

from typing import Any

from vllm.renderers.inputs.preprocess import parse_model_prompt
from vllm.v1.engine.llm_engine import LLMEngine

from verl_like.backends.base import Request
from verl_like.backends.pictures import PictureReader, unexpanded
from verl_like.backends.vllm import internals
from verl_like.data.pictures import MAX_PICTURES, decoded
from verl_like.protocol import PICTURES


class PicturePrompts:
    """Makes vLLM's inputs of prompts with pictures."""

    def __init__(self, engine: LLMEngine, reader: PictureReader) -> None:
        self._engine, self._reader = engine, reader
        internals.keep_pixels()

    def rendered(self, request: Request) -> Any:
        """Return the input of a request, with the pixels of its pictures.

        Raises:
            ValueError: vLLM would give the pictures other numbers of tokens than the prompt has.
        """
        assert request.features is not None, "a prompt without pictures needs no processor"
        pictures = [decoded(content) for content in request.features[PICTURES]]
        counts = [self._reader.count(picture.height, picture.width) for picture in pictures]
        renderer = self._engine.renderer
        prompt = parse_model_prompt(
            self._engine.model_config,
            {
                "prompt_token_ids": unexpanded(request.prompt_ids, self._reader.token_id, counts),
                "multi_modal_data": {"image": pictures},
            },
        )
        [found] = renderer.render_cmpl([prompt], renderer.default_cmpl_tok_params)
        if list(found["prompt_token_ids"]) != request.prompt_ids:
            raise ValueError(
                f"vLLM makes {len(found['prompt_token_ids'])} tokens of the prompt of request {request.request_id}, "
                f"the trainer {len(request.prompt_ids)}: their processors of pictures differ. Install the versions in "
                "the lock file in requirements/."
            )
        return found

    def forget(self) -> None:
        """Drop what the engine has computed from pictures with old weights."""
        self._engine.reset_encoder_cache()


def picture_arguments(tokenizer_path: str) -> dict[str, Any]:
    """Return the arguments of an engine that reads pictures: its processors need the tokenizer."""
    return {
        "tokenizer": tokenizer_path,
        "skip_tokenizer_init": False,
        "limit_mm_per_prompt": {"image": MAX_PICTURES, "video": 0},
        # Otherwise vLLM scales pixels by buffers that load_format=dummy fills with random numbers.
        "mm_device_do_normalize": False,
        "mm_processor_cache_gb": 0,  # the samples of a prompt share its input, and the encoder's results, by their hash
    }
