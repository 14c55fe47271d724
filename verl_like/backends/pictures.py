"""Pictures as inputs of a vision-language model: how many tokens each takes, its pixels, and the positions of tokens.

The prompt ids of a row have as many picture tokens as the picture has features. Engines get one per picture and repeat
it themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer, PreTrainedConfig

from verl_like.config.schema import ModelConfig
from verl_like.context import current
from verl_like.data.pictures import decoded
from verl_like.remote_models import local_path

SMALL_SIDE = 28  # pixels
CACHED_BYTES = 2**28  # of pixels, in each process
# Names that configs give to the tokens of pictures and videos, which stand for no text.
_PICTURE, _VIDEO = ("image_token_id", "image_token_index"), ("video_token_id", "video_token_index")
_PARTS_OF_VISION = ("visual", "vision_tower", "multi_modal_projector")
OF_PICTURES = ("vision_config", "vision_tower")  # fields of the configs of these models


def reads_pictures(config: PreTrainedConfig) -> bool:
    """Return whether a model reads pictures in addition to text."""
    known = config.to_dict()
    return any(known.get(name) for name in OF_PICTURES) and _first(known, _PICTURE) is not None


def generator_class(config: PreTrainedConfig) -> Any:
    """Return transformers' class that makes the model of a config with its output layer."""
    return AutoModelForImageTextToText if reads_pictures(config) else AutoModelForCausalLM


def is_of_vision(name: str) -> bool:
    """Return whether a parameter of a model without its output layer reads pictures."""
    return name.partition(".")[0] in _PARTS_OF_VISION


def unused_parameters(model: Any) -> list[nn.Parameter]:
    """Return the parameters of a model without its output layer that no picture reaches: LLaVA reads an inner layer."""
    tower, layer = getattr(model, "vision_tower", None), getattr(model.config, "vision_feature_layer", None)
    if tower is None or not isinstance(layer, int):
        return []
    layers = tower.encoder.layers
    num_used = layer + len(layers) + 1 if layer < 0 else layer  # the first state is the embedding
    return [*layers[num_used:].parameters(), *tower.post_layernorm.parameters()]


def forbidden_ids(config: PreTrainedConfig) -> list[int]:
    """Return the tokens that stand for pictures and videos: a policy must not sample them; none of a text model."""
    known = config.to_dict() if reads_pictures(config) else {}
    return sorted(token for names in (_PICTURE, _VIDEO) if (token := _first(known, names)) is not None)


def _first(known: Mapping[str, Any], names: Iterable[str]) -> int | None:
    return next((int(known[name]) for name in names if known.get(name) is not None), None)


class PixelCache:
    """The newest pictures that the models of this process have read, which share them: actor and reference."""

    def __init__(self) -> None:
        self._pixels: OrderedDict[bytes, dict[str, Tensor]] = OrderedDict()
        self._num_bytes = 0

    def get(self, key: bytes) -> dict[str, Tensor] | None:
        if key not in self._pixels:
            return None
        self._pixels.move_to_end(key)
        return self._pixels[key]

    def put(self, key: bytes, pixels: dict[str, Tensor]) -> None:
        """Keep these, and drop the oldest ones above the limit."""
        self._pixels[key] = pixels
        self._num_bytes += _num_bytes(pixels)
        while self._num_bytes > CACHED_BYTES and len(self._pixels) > 1:
            _, dropped = self._pixels.popitem(last=False)
            self._num_bytes -= _num_bytes(dropped)


class PictureReader:
    """The processor of a model's pictures.

    Args:
        path: folder or hub name of the model.

    Raises:
        ValueError: for a model without a processor of pictures, or one whose tokens per picture are not known.
    """

    def __init__(self, path: str, *, model: ModelConfig) -> None:
        # Its import needs torchvision, or none that is installed.
        from transformers import AutoImageProcessor, AutoProcessor

        try:
            self._processor = AutoImageProcessor.from_pretrained(path, trust_remote_code=model.trust_remote_code)
            of_text = local_path(model.tokenizer_path) if model.tokenizer_path else path
            tokenizer = AutoTokenizer.from_pretrained(of_text, trust_remote_code=model.trust_remote_code)
            self._counter: Any = None  # the processor of pictures and text, if that of pictures does not count tokens
            if not hasattr(self._processor, "merge_size"):
                self._counter = AutoProcessor.from_pretrained(path, trust_remote_code=model.trust_remote_code)
        except (OSError, ValueError, ImportError) as error:
            raise ValueError(
                f"the processor of pictures in {path!r} cannot be loaded: {error}. Expected preprocessor_config.json "
                "and the tokenizer in the model's folder; docs/vision.md names the packages that it needs."
            ) from error
        config = AutoConfig.from_pretrained(path, trust_remote_code=model.trust_remote_code)
        token_id = _first(config.to_dict(), _PICTURE)
        if token_id is None or not (self._counter is None or hasattr(self._counter, "_get_num_multimodal_tokens")):
            raise ValueError(
                f"{type(self._processor).__name__} in {path!r} does not state how many tokens a picture takes; "
                "expected a family of docs/models.md. Name such a model."
            )
        self.token_id: int = token_id
        self.token: str = tokenizer.convert_ids_to_tokens(token_id)
        self._path = path

    def count(self, height: int, width: int) -> int:
        """Return the number of tokens of a picture of this size."""
        if self._counter is not None:
            found = self._counter._get_num_multimodal_tokens(image_sizes=[(height, width)])
            return int(found["num_image_tokens"][0])
        patches: int = self._processor.get_number_of_image_patches(height, width, {})
        merged: int = patches // self._processor.merge_size**2
        return merged

    def inputs(self, pictures: Sequence[bytes]) -> dict[str, Tensor]:
        """Return the model's arguments for some encoded pictures, concatenated in their order."""
        found = [self._inputs_of(content) for content in pictures]
        return {name: torch.cat([each[name] for each in found]) for name in found[0]}

    def _inputs_of(self, content: bytes) -> dict[str, Tensor]:
        key, cache = digest_of([self._path.encode(), content]), current(PixelCache)
        if (known := cache.get(key)) is not None:
            return known
        made = self._processor(images=[decoded(content)], return_tensors="pt")
        found = {name: value for name, value in made.items() if isinstance(value, Tensor)}
        cache.put(key, found)
        return found

    def smallest(self) -> bytes:
        """Return an encoded picture with which a pass without pictures takes part in collectives."""
        from PIL import Image

        content = BytesIO()
        Image.new("RGB", (SMALL_SIDE, SMALL_SIDE)).save(content, "PNG")
        return content.getvalue()


def unexpanded(prompt_ids: Sequence[int], token_id: int, counts: Sequence[int]) -> list[int]:
    """Return the prompt with one token for each picture, which has ``counts[i]`` of them in ``prompt_ids``.

    Raises:
        ValueError: the prompt has other numbers of these tokens.
    """
    found: list[int] = []
    left, position = list(counts), 0
    while position < len(prompt_ids):
        found.append(prompt_ids[position])
        step = 1
        if prompt_ids[position] == token_id:
            if not left:
                raise ValueError(f"the prompt has picture tokens for more than its {len(counts)} pictures.")
            step = left.pop(0)
            if list(prompt_ids[position : position + step]) != [token_id] * step:
                raise ValueError(f"a picture of {step} tokens has fewer in the prompt, at position {position}.")
        position += step
    if left:
        raise ValueError(f"the prompt lacks the tokens of {len(left)} of its {len(counts)} pictures.")
    return found


def positions_of(model: Any, prompt_ids: NDArray[np.int32], inputs: Mapping[str, Tensor], token_id: int) -> Tensor:
    """Return [3, P] int64, the rotary positions (time, height, width) of a prompt's tokens.

    Args:
        model: the model without its output layer, whose family defines them.
        inputs: of the prompt's pictures.
    """
    ids = torch.from_numpy(np.asarray(prompt_ids, np.int64))[None]
    found, _ = model.get_rope_index(
        ids, mm_token_type_ids=(ids == token_id).int(), image_grid_thw=inputs["image_grid_thw"]
    )
    positions: Tensor = found[:, 0]
    return positions


def has_rotary_planes(model: Any) -> bool:
    """Return whether a model's positions have a time, a height and a width."""
    return hasattr(model, "get_rope_index")


def digest_of(parts: Sequence[bytes]) -> bytes:
    """Return a digest of some encoded pictures."""
    digest = blake2b(digest_size=16)
    for content in parts:
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()


def _num_bytes(found: Mapping[str, Tensor]) -> int:
    return sum(value.nbytes for value in found.values())
