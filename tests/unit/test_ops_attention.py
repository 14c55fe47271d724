"""Packed attention equals the model's own attention on one row at a time."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.unit._fsdp_ranks import make_rows, tiny_model
from verl_like.backends.fsdp.models import PolicyModel
from verl_like.ops.attention import PACKED_ATTENTION, register_packed_attention, resolve_kernel
from verl_like.ops.log_probs import TokenStatsFunction
from verl_like.ops.packing import pack_rows
from verl_like.protocol import Ragged

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def run(family: str, rows: Any, *, remove_padding: bool, **changes: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Hidden states, log-probs and gradients of a policy over these rows."""
    backbone = tiny_model(family, **changes)
    register_packed_attention()
    backbone.set_attn_implementation(PACKED_ATTENTION if remove_padding else "eager")
    policy = PolicyModel(
        backbone, kernel="sdpa" if remove_padding else None, token_stats=TokenStatsFunction(chunk_tokens=1000)
    )
    inputs = pack_rows(
        rows.ragged("prompt_ids"), rows.ragged("response_ids"), remove_padding=remove_padding, device=CPU
    )
    hidden = policy.hidden_states(inputs)
    stats = policy(inputs, temperature=0.9, entropy=True)
    (stats.log_probs.sum() + stats.entropy.sum()).backward()
    return hidden, stats.log_probs, {name: p.grad for name, p in backbone.named_parameters()}


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("longest", [9, 90])
def test_packed_equals_padded_eager_forward_and_backward(family: str, longest: int) -> None:
    rows = make_rows(7, longest=longest)
    packed, padded = (run(family, rows, remove_padding=choice) for choice in (True, False))
    torch.testing.assert_close(packed[0], padded[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(packed[1], padded[1], atol=1e-5, rtol=0)
    for name, grad in packed[2].items():
        scale = max(float(padded[2][name].abs().max()), 1.0)
        torch.testing.assert_close(
            grad / scale, padded[2][name] / scale, atol=1e-5, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_sliding_window_equals_padded_eager() -> None:
    rows = make_rows(6, longest=30)
    window: dict[str, Any] = {
        "use_sliding_window": True,
        "sliding_window": 4,
        "layer_types": ["full_attention", "sliding_attention"],
    }
    packed, padded, full = (
        run("qwen2", rows, remove_padding=choice, **changes)[1]
        for choice, changes in ((True, window), (False, window), (True, {}))
    )
    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=0)
    assert not torch.allclose(packed, full, atol=1e-3)


def test_rows_do_not_see_each_other() -> None:
    rows = make_rows(5)
    alone = rows.select_idxs([3])
    _, together, _ = run("qwen2", rows, remove_padding=True)
    _, single, _ = run("qwen2", alone, remove_padding=True)
    offsets = rows.ragged("response_ids").offsets
    torch.testing.assert_close(together[offsets[3] : offsets[4]], single, atol=1e-6, rtol=0)


def test_memory_stays_linear_in_packed_tokens() -> None:
    # 400 rows of 40 tokens: a [K, K] float32 mask or score matrix would be 1 GB, all activations here are a few MB.
    backbone = tiny_model("qwen2")
    register_packed_attention()
    backbone.set_attn_implementation(PACKED_ATTENTION)
    policy = PolicyModel(backbone, kernel="sdpa", token_stats=TokenStatsFunction(chunk_tokens=4096))
    ids = Ragged.from_lengths(np.zeros(400 * 20, np.int32), np.full(400, 20))
    inputs = pack_rows(ids, ids, remove_padding=True, device=CPU)
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        policy(inputs, temperature=1.0)
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert largest < 50e6


def test_auto_takes_what_the_device_has_and_wrong_requests_are_refused() -> None:
    assert resolve_kernel("auto", CPU, torch.float32) == "sdpa"
    assert resolve_kernel("varlen", GPU, torch.bfloat16) == "varlen"
    with pytest.raises(ValueError, match=r"model\.attention is varlen.*Set model\.attention=auto"):
        resolve_kernel("varlen", CPU, torch.float32)


def test_kernels_of_16_bits_are_not_chosen_for_float32_and_refused_where_asked_for() -> None:
    assert resolve_kernel("auto", GPU, torch.float32) == "sdpa"
    assert resolve_kernel("sdpa", GPU, torch.float32) == "sdpa"
    for kernel in ("flash", "varlen"):
        with pytest.raises(ValueError, match=rf"{kernel}, which takes bfloat16 or float16.*float32.*attention=auto"):
            resolve_kernel(kernel, GPU, torch.float32)


def test_a_flash_attention_without_packed_rows_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("flash_attn")
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    assert resolve_kernel("auto", GPU, torch.bfloat16) == "varlen"
    with pytest.raises(ValueError, match=r"flash_attn_varlen_func.*model\.attention=auto"):
        resolve_kernel("flash", GPU, torch.bfloat16)
    package.flash_attn_varlen_func = print  # type: ignore[attr-defined]
    assert resolve_kernel("auto", GPU, torch.bfloat16) == "flash"
