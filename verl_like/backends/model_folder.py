"""Read facts about a Hugging Face model folder without loading its weights, and read the weights one by one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, revert_weight_conversion

from verl_like.backends.pictures import generator_class
from verl_like.config.schema import ModelConfig
from verl_like.remote_models import weights_in


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFolder:
    """Facts about a causal language model.

    ``skeleton``: the model without memory. ``weight_shapes``: name -> shape of every tensor of its ``state_dict`` (tied
    weights under both names). ``tied_names``: name -> the names tied to it; the key is the tensor's first name in the
    model, which is the name in files. ``end_token_ids``: ids that end a response, from the tokenizer and the generation
    config.
    """

    config: PretrainedConfig
    skeleton: PreTrainedModel
    weight_shapes: dict[str, tuple[int, ...]]
    tied_names: dict[str, list[str]]
    end_token_ids: list[int]
    vocab_size: int


def model_folder(*, model_path: str, tokenizer_path: str, model: ModelConfig) -> ModelFolder:
    """Read the facts; ``model.override_config`` is applied to the config."""
    config = AutoConfig.from_pretrained(model_path, trust_remote_code=model.trust_remote_code, **model.override_config)
    with torch.device("meta"):
        skeleton = generator_class(config).from_config(config, trust_remote_code=model.trust_remote_code)
    return ModelFolder(
        config=config,
        skeleton=skeleton,
        weight_shapes={name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()},
        tied_names=_tied_names(skeleton),
        end_token_ids=_end_token_ids(model_path, tokenizer_path or model_path, config, model.trust_remote_code),
        vocab_size=config.get_text_config().vocab_size,
    )


def converts(folder: ModelFolder) -> bool:
    """Return whether files have other tensors than the model, such as one per expert for a tensor of all experts.

    Engines know the names of the model as well as those of its files.
    """
    mapping = get_model_conversion_mapping(folder.skeleton, add_legacy=False)
    return any(isinstance(each, WeightConverter) for each in mapping)


def as_in_files(folder: ModelFolder, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the model's tensors in the form of its files, each converted separately."""
    if not converts(folder):
        yield from weights
        return
    for name, tensor in weights:
        yield from revert_weight_conversion(folder.skeleton, {name: tensor}).items()


def _tied_names(model: nn.Module) -> dict[str, list[str]]:
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {first: others for first, *others in names.values() if others}


def checkpoint_weights(
    model_path: str, folder: ModelFolder, *, dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, full tensor in ``dtype`` on ``device``) of each tensor in the model's safetensors files that is in
    ``weight_shapes``, read one by one; tied weights under each of their names.

    Raises:
        ValueError: if there are no safetensors files, or the weights are quantised.
    """
    refuse_quantised(folder.config, model_path)
    aliases = {name for others in folder.tied_names.values() for name in others}
    for file in weight_files(model_path):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (no mapping)
                if name in folder.weight_shapes and name not in aliases:
                    tensor = weights.get_tensor(name).to(device=device, dtype=dtype)
                    yield from ((each, tensor) for each in (name, *folder.tied_names.get(name, ())))


def refuse_quantised(config: PretrainedConfig, model_path: str) -> None:
    """Raise ValueError for quantised weights."""
    if config.to_dict().get("quantization_config"):
        raise ValueError(
            f"the weights of {model_path!r} are quantised, expected plain floating point. Name a model that is not "
            f"quantised."
        )


def weight_files(model_path: str) -> list[Path]:
    """Return the safetensors files of a folder or hub name, downloading them if needed.

    Raises:
        ValueError: if there are none.
    """
    root = Path(model_path)
    if not root.is_dir():
        root = Path(
            snapshot_download(model_path, allow_patterns=["model*.safetensors", "model.safetensors.index.json"])
        )
    files = weights_in(root)
    if not files:
        raise ValueError(
            f"the folder {model_path!r} has no weights in safetensors files, the only format that can be read tensor "
            "by tensor. Load and save the model with transformers to make them."
        )
    return files


@contextmanager
def fresh_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder to fill. It then appears at ``path``, complete or not at all; an older one is replaced."""
    fresh = path.with_name(f".{path.name}.writing-{os.getpid()}")
    old = path.with_name(f".{path.name}.replaced-{os.getpid()}")
    fresh.mkdir(parents=True)
    yield fresh
    if path.exists():
        path.rename(old)
    fresh.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _end_token_ids(
    model_path: str, tokenizer_path: str, config: PretrainedConfig, trust_remote_code: bool
) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path, trust_remote_code=trust_remote_code)
    try:
        generation = GenerationConfig.from_pretrained(model_path)
    except OSError:  # the file is optional
        generation = GenerationConfig.from_model_config(config)
    ids = generation.eos_token_id if isinstance(generation.eos_token_id, list) else [generation.eos_token_id]
    return sorted({int(token_id) for token_id in [*ids, tokenizer.eos_token_id] if token_id is not None})
