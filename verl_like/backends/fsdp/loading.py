"""Models without memory, and their weights from files: a rank reads only the rows that it keeps.

transformers knows how files name a weight, and which weights are combined into one. The calls without a public API are
all in this module, with the version against which they were checked.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    core_model_loading,
)
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.distributed.sharding_utils import _dtensor_from_local_like
from transformers.modeling_utils import LoadStateDictConfig, LoadStateDictInfo
from transformers.utils import logging as transformers_logging

from verl_like.backends.model_folder import refuse_quantised, weight_files
from verl_like.telemetry.ledger import stage

Auto = type[AutoModel | AutoModelForCausalLM | AutoModelForImageTextToText | AutoModelForSequenceClassification]


def skeleton(
    auto: Auto,
    config: PreTrainedConfig,
    *,
    attention: str | dict[str, str],
    dtype: torch.dtype,
    trust_remote_code: bool,
) -> PreTrainedModel:
    """Return the model with every parameter and buffer on the meta device; tied weights are one parameter."""
    with torch.device("meta"), _quiet():
        return auto.from_config(config, dtype=dtype, attn_implementation=attention, trust_remote_code=trust_remote_code)


def load_weights(
    backbone: PreTrainedModel,
    path: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    stay_on_host: bool = False,
    new: Collection[str] = (),
) -> None:
    """Give a skeleton its weights on ``device``, in ``dtype``; of a sharded one only this rank's rows.

    Buffers that are in no file are recomputed.

    Args:
        stay_on_host: whether weights of a sharded skeleton stay in host memory; buffers are on ``device`` all the same.
        new: names of weights that are zero if no file has them.

    Raises:
        ValueError: for files that cannot be read, and weights that are missing, of another shape, or quantised.
    """
    refuse_quantised(backbone.config, path)
    config = LoadStateDictConfig(
        pretrained_model_name_or_path=path,
        device_map={"": device},
        dtype=dtype,
        dtype_plan=backbone._get_dtype_plan(dtype),
        weight_mapping=get_model_conversion_mapping(backbone),
        ignore_mismatched_sizes=True,  # they are reported below, by name
    )
    try:
        # One after the other, so that at most one temporary tensor is in memory. transformers 5.19, core_model_loading:
        # slices are cut before they are read, by the placement of the parameter.
        with stage("build/download"):
            paths = weight_files(path)
        with ExitStack() as files, _quiet(), patch.dict(os.environ, {"HF_DEACTIVATE_ASYNC_LOAD": "1"}):
            if stay_on_host:
                files.enter_context(patch.object(core_model_loading, "_dtensor_from_local_like", _on_host))
            tensors: dict[str, FileTensor] = {}
            for file in paths:
                opened = files.enter_context(safe_open(file, framework="pt"))
                tensors |= {name: FileTensor(opened.get_slice(name)) for name in opened.keys()}  # noqa: SIM118
            found, _ = convert_and_load_state_dict_in_model(backbone, tensors, config)
            _refuse_others(found, path)
            # Weights that are in no file are initialised, and tied weights share one tensor again.
            found = backbone._finalize_model_loading(backbone, config, found)
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"the weights in {path!r} cannot be read: {error}. Check that they were written completely."
        ) from error
    missing = sorted(set(found.missing_keys) - set(new))
    for name in set(found.missing_keys) & set(new):
        nn.init.zeros_(backbone.get_parameter(name))
    if missing:
        raise ValueError(
            f"the weights in {path!r} lack {len(missing)} tensors that {type(backbone).__name__} needs, among them "
            f"{missing[:3]}. Check that model.path is the right folder and was written completely."
        )


def _on_host(rows: Tensor, like: DTensor) -> DTensor:
    """Wrap this rank's rows as transformers does (5.19), which puts them on the mesh's device, and move them to the
    host before the next ones are read.
    """
    return _dtensor_from_local_like(rows, like).to("cpu")


def _refuse_others(found: LoadStateDictInfo, path: str) -> None:
    """Raise ValueError for weights of another shape; the reported shapes are those of this rank's rows."""
    shapes = [f"{name} is {tuple(file)}, expected {tuple(model)}" for name, file, model in found.mismatched_keys]
    problems = sorted(shapes) + [f"{name}: {error}" for name, error in found.conversion_errors.items()]
    if problems:
        raise ValueError(
            f"{len(problems)} weights in {path!r} do not have the shapes that its config.json gives, among them "
            f"{'; '.join(problems[:3])}. Check that model.path is the right folder, and model.override_config."
        )


class FileTensor:
    """A tensor in a file. Its rows are copied when read, because another process may rewrite the mapped file."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def get_shape(self) -> list[int]:
        return list(self._found.get_shape())

    def get_dtype(self) -> str:
        return str(self._found.get_dtype())

    def __getitem__(self, rows: Any) -> Tensor:
        tensor: Tensor = self._found[rows]
        return tensor.clone()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' progress bars and reports of unused weights, one per rank and role; missing weights raise
    here.
    """
    show_progress, verbosity = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if show_progress:
            transformers_logging.enable_progress_bar()
