"""Rules on the models' kernels, which may need a GPU, a package or packed rows."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

from verl_like.checks.cluster import shardings
from verl_like.checks.gpus import Gpus
from verl_like.config.schema import Config

_ATTENTION_ON_GPU = ("flash3", "flash", "varlen")
_FLASH = {  # module and remedy
    "flash": ("flash_attn", "Run `pip install --no-build-isolation flash-attn`"),
    "flash3": ("flash_attn_interface", "Build FlashAttention 3 (the folder hopper of its repository)"),
}


def kernels_have_a_gpu(config: Config, gpus: Gpus) -> Iterator[str]:
    if gpus.runs_on_gpu(config) is not False:
        return
    for name, kernel, of_gpu, other in (
        ("model.attention", config.model.attention, _ATTENTION_ON_GPU, "auto"),
        ("model.kernels", config.model.kernels, ("liger",), "torch"),
    ):
        if kernel in of_gpu:
            yield f"{name} is {kernel}, which needs a GPU, but the workers run on CPU. Set {name}={other}."


def attention_needs_packed_rows(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.model.attention != "auto" and not config.model.remove_padding:
        yield (
            f"model.attention is {config.model.attention}, the kernel of packed rows, but model.remove_padding is "
            "false. Set model.remove_padding=true, or model.attention=auto."
        )


def compiled_layers_are_packed(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.actor.compile_layers == "true" and not config.model.remove_padding:
        yield (
            "actor.compile_layers leaves the attention of packed rows as it is, but model.remove_padding is false. Set "
            "model.remove_padding=true, or actor.compile_layers=false."
        )


def attention_takes_16_bits(config: Config, gpus: Gpus) -> Iterator[str]:
    kernel = config.model.attention
    if kernel not in _ATTENTION_ON_GPU:
        return
    for section, fsdp in shardings(config).items():
        if fsdp.param_dtype == "float32":
            yield (
                f"model.attention is {kernel}, which needs 16-bit tensors, but {section}.fsdp.param_dtype is float32. "
                f"Set model.attention=auto, or {section}.fsdp.param_dtype=bfloat16."
            )


def attention_is_installed(config: Config, gpus: Gpus) -> Iterator[str]:
    kernel = config.model.attention
    module, remedy = _FLASH.get(kernel, ("", ""))
    if module and importlib.util.find_spec(module) is None:
        yield (
            f"model.attention is {kernel}, but {module.replace('_', '-')} is not installed. {remedy}, or set "
            f"model.attention=auto."
        )


def fused_kernels_are_installed(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.model.kernels == "liger" and importlib.util.find_spec("liger_kernel") is None:
        yield (
            "model.kernels is liger, but liger-kernel is not installed. Run `pip install liger-kernel`, or set "
            "model.kernels=torch."
        )


def layers_are_fused_once(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.model.kernels == "liger" and config.actor.compile_layers == "true":
        yield (
            "actor.compile_layers compiles the layers that model.kernels=liger replaces by its kernels. Set "
            "model.kernels=torch, or actor.compile_layers=false."
        )


KERNEL_RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (
    kernels_have_a_gpu,
    attention_needs_packed_rows,
    compiled_layers_are_packed,
    attention_is_installed,
    attention_takes_16_bits,
    fused_kernels_are_installed,
    layers_are_fused_once,
)
