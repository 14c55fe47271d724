"""Start vLLM on CPU without work that has no use there: 0.6 s of an import, and 0.13 s of each engine.

vLLM imports PyTorch's compiler, to decorate nine functions and to add its operators to a list of the compiler. On CPU
our engines compile nothing. An engine on CPU also replaces eleven Triton kernels, and compares each variable of each
module of the process with each of them. Checked against vllm 0.32 (env_override.py, triton_utils/dispatcher.py) and
torch 2.13.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

# The second would be imported by the first engine of each process.
IMPORTS = ("vllm.v1.worker.cpu_worker", "vllm.model_executor.layers.quantization.online.base")
COMPILER = "torch._inductor.lowering"  # brings nearly all of it; vLLM continues without it if it cannot be imported


def import_worker() -> None:
    """Import vLLM's worker on CPU. vLLM's engine core imports Ray, but its worker does not, which brings 97 % of the
    engine's modules.
    """
    with without_compiler():
        for name in IMPORTS:
            importlib.import_module(name)


@contextmanager
def without_compiler() -> Iterator[None]:
    """Leave PyTorch's compiler out of imports in this context; functions defined in it are not compiled."""
    is_loaded = COMPILER in sys.modules
    if not is_loaded:
        sys.modules[COMPILER] = None  # type: ignore[assignment]  # an import finds no module
    try:
        with patch.object(torch, "compile", _as_defined):
            yield
    finally:
        if not is_loaded:
            del sys.modules[COMPILER]


@contextmanager
def kernels_in_vllm() -> Iterator[None]:
    """Let an engine that is built in this context look for Triton kernels only in vLLM's own modules."""
    dispatcher = importlib.import_module("vllm.triton_utils.dispatcher")
    with patch.object(dispatcher, "sys", SimpleNamespace(modules=_ModulesOfVllm())):
        yield


class _ModulesOfVllm:
    """vLLM's part of ``sys.modules``."""

    def __getitem__(self, name: str) -> ModuleType:
        return sys.modules[name]

    def values(self) -> list[ModuleType]:
        return [module for name, module in sys.modules.items() if name.partition(".")[0] == "vllm"]


def _as_defined(model: Any = None, **options: object) -> Any:
    """Stand in for ``torch.compile``: compile nothing."""
    return model if model is not None else _as_defined
