"""A LoRA adapter in an engine whose model loads its weights from its folder: a sync transfers only the adapter.

Checked against vllm 0.32, which loads adapters from folders.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from torch import Tensor
from transformers import PreTrainedConfig
from vllm.config.lora import MaxLoRARanks
from vllm.lora.request import LoRARequest

from verl_like.backends.lora import adapters_of
from verl_like.backends.vllm.shared_memory import folder_of_run
from verl_like.config.schema import ModelConfig

_NAME, _ID = "policy", 1


class EngineAdapter:
    """The one adapter that all requests of an engine use.

    Args:
        config: config of the engine's model.
    """

    def __init__(self, config: PreTrainedConfig, model: ModelConfig, run_id: str) -> None:
        self._run_id = run_id
        self._adapters = adapters_of(config, model)
        rank = min(rank for rank in get_args(MaxLoRARanks) if rank >= model.lora.rank)  # higher ranks are refused
        self.arguments = {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank, "load_format": "auto"}
        self.shapes = self._adapters.shapes()
        self.request = LoRARequest(_NAME, _ID, "loaded already")

    def load(self, engine: Any, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the adapter's weights."""
        with folder_of_run(self._run_id) as folder:
            self._adapters.write(folder / _NAME, {name: tensor.clone() for name, tensor in weights}, base="")
            engine.add_lora(LoRARequest(_NAME, _ID, str(folder / _NAME), load_inplace=True))
