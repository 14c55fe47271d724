"""Packed attention equals the model's own attention on one row at a time."""

from __future__ import annotations

import ast
import importlib.util
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import varlen
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from tests.unit._fsdp_ranks import VOCAB, make_rows, tiny_model
from verl_like.backends.fsdp.models import PolicyModel
from verl_like.ops import attention_kernels
from verl_like.ops.attention import PACKED_ATTENTION, packed_attention, register_packed_attention
from verl_like.ops.attention_kernels import resolve_kernel
from verl_like.ops.log_probs import TokenStatsFunction
from verl_like.ops.packing import pack_rows
from verl_like.ops.segments import segments
from verl_like.protocol import DataProto, Ragged

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def run(
    family: str, rows: Any, *, remove_padding: bool, same_prompt: NDArray[np.int64] | None = None, **changes: Any
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Hidden states, log-probs and gradients of a policy over these rows."""
    backbone = tiny_model(family, **changes)
    register_packed_attention()
    backbone.set_attn_implementation(PACKED_ATTENTION if remove_padding else "eager")
    policy = PolicyModel(
        backbone, kernel="sdpa" if remove_padding else None, token_stats=TokenStatsFunction(budget_mib=1)
    )
    inputs = pack_rows(
        rows.ragged("prompt_ids"),
        rows.ragged("response_ids"),
        remove_padding=remove_padding,
        device=CPU,
        same_prompt=same_prompt,
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
    assert_gradients_equal(packed[2], padded[2])


def assert_gradients_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, grad in found.items():
        scale = max(float(expected[name].abs().max()), 1.0)
        torch.testing.assert_close(
            grad / scale, expected[name] / scale, atol=1e-5, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def grouped_rows(prompts: list[int], of_row: list[int], responses: list[int]) -> DataProto:
    """Rows with the prompt of this number and a response of this length each."""
    rng = np.random.default_rng(1)
    written = [rng.integers(0, VOCAB, length) for length in prompts]
    return DataProto(
        {
            "prompt_ids": Ragged.from_rows([written[number] for number in of_row], "int32"),
            "response_ids": Ragged.from_rows([rng.integers(0, VOCAB, length) for length in responses], "int32"),
        }
    )


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize(
    ("prompts", "of_row", "responses"),
    [
        ([7, 3], [0, 1, 0, 0, 1], [5, 9, 1, 4, 2]),
        ([40, 3, 90], [2, 0, 0, 1, 1, 2, 0], [70, 50, 8, 60, 1, 3, 2]),  # groups of several widths, some padded
        ([6], [0, 0, 0], [1, 1, 1]),  # nothing but the prompt is run
        ([6, 4], [0, 1], [3, 3]),  # nothing is shared
    ],
)
def test_shared_prompts_equal_padded_eager_forward_and_backward(
    prompts: list[int], of_row: list[int], responses: list[int], window: int | None
) -> None:
    changes: dict[str, Any] = {}
    if window is not None:
        changes = {
            "use_sliding_window": True,
            "sliding_window": window,
            "layer_types": ["full_attention", "sliding_attention"],
        }
    rows = grouped_rows(prompts, of_row, responses)
    shared = run("qwen2", rows, remove_padding=True, same_prompt=np.array(of_row), **changes)
    padded = run("qwen2", rows, remove_padding=False, **changes)
    for found, expected in zip(shared[:2], padded[:2], strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert_gradients_equal(shared[2], padded[2])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 80)), min_size=1, max_size=12))
def test_sharing_prompts_changes_no_log_prob(rows: list[tuple[int, int]]) -> None:
    of_row, responses = [number for number, _ in rows], [length for _, length in rows]
    table = grouped_rows([2, 30, 65, 1], of_row, responses)
    shared, alone = (
        run("llama", table, remove_padding=True, same_prompt=numbers)[1] for numbers in (np.array(of_row), None)
    )
    torch.testing.assert_close(shared, alone, atol=1e-5, rtol=0)


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
    policy = PolicyModel(backbone, kernel="sdpa", token_stats=TokenStatsFunction(budget_mib=1))
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
    for kernel in ("flash3", "flash", "varlen"):
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


def test_hopper_takes_flash_attention_3_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("flash_attn_interface")
    monkeypatch.setitem(sys.modules, "flash_attn_interface", package)
    with pytest.raises(ValueError, match=r"no flash_attn_interface with flash_attn_varlen_func.*FlashAttention 3"):
        resolve_kernel("flash3", GPU, torch.bfloat16)
    package.flash_attn_varlen_func = print  # type: ignore[attr-defined]
    assert resolve_kernel("flash3", GPU, torch.bfloat16) == "flash3"
    for is_hopper, kernel in ((True, "flash3"), (False, "varlen")):
        monkeypatch.setattr(attention_kernels, "is_hopper", lambda device, found=is_hopper: found)
        assert resolve_kernel("auto", GPU, torch.bfloat16) == kernel


@pytest.mark.parametrize(("kernel", "module"), [("flash", "flash_attn"), ("flash3", "flash_attn_interface")])
@pytest.mark.parametrize("with_log_sums", [False, True])
@pytest.mark.parametrize("window", [None, 4])
def test_flash_attention_is_called_with_the_arguments_that_both_know(
    kernel: str, module: str, with_log_sums: bool, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and order of flash-attn 2.8 and 3; PyTorch's attention stands in for what they compute."""

    def flash_attn_varlen_func(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        *,
        softmax_scale: float,
        causal: bool,
        window_size: tuple[int, int],
        deterministic: bool,
    ) -> Any:
        assert causal and not deterministic and window_size == ((-1, -1) if window is None else (window - 1, 0))
        outs = []
        for (q0, q1), (k0, k1) in zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True):
            assert q1 - q0 <= max_seqlen_q and k1 - k0 <= max_seqlen_k
            mask = torch.ones(q1 - q0, k1 - k0, dtype=torch.bool).tril(k1 - k0 - q1 + q0)
            mask = mask if window is None else mask.triu(k1 - k0 - q1 + q0 + 1 - window)
            heads = (states.transpose(0, 1) for states in (q[q0:q1], k[k0:k1], v[k0:k1]))
            out = scaled_dot_product_attention(*heads, attn_mask=mask, scale=softmax_scale, enable_gqa=True)
            outs.append(out.transpose(0, 1))
        return (torch.cat(outs), None) if with_log_sums else torch.cat(outs)

    package = ModuleType(module)
    package.flash_attn_varlen_func = flash_attn_varlen_func  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module, package)
    rows = segments(np.array([3, 5, 2]), np.array([0, 0, 0]), np.array([0, 3, 3]), device=CPU)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, 10, 8) for heads in (4, 2, 2))
    found, expected = (
        packed_attention(nn.Module(), q, k, v, None, segments=rows, kernel=name, scaling=0.3, sliding_window=window)[0]
        for name in (kernel, "sdpa")
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("takes_groups", [True, False])
def test_the_kernel_for_packed_rows_gets_all_heads_where_it_does_not_group_them(
    takes_groups: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, cu_keys: Tensor, is_grouped: bool) -> Tensor:
        assert is_grouped == (q.shape[1] != k.shape[1])
        rows = zip(
            q.split(starts.diff().tolist()), *(each.split(cu_keys.diff().tolist()) for each in (k, v)), strict=True
        )
        heads_first = [[states.transpose(0, 1)[None] for states in row] for row in rows]
        masks = [causal_lower_right(query.shape[2], key.shape[2]) for query, key, _ in heads_first]
        outs = [
            scaled_dot_product_attention(*row, attn_mask=mask, enable_gqa=is_grouped)
            for row, mask in zip(heads_first, masks, strict=True)
        ]
        return torch.cat([out[0].transpose(0, 1) for out in outs])

    # As torch 2.13 has it, and as 2.11 has it.
    def of_today(q, k, v, starts, cu_keys, most, most_keys, *, scale, window_size, enable_gqa=False):  # type: ignore[no-untyped-def]
        assert (most, most_keys) == (max(starts.diff()), max(cu_keys.diff()))
        return attention(q, k, v, starts, cu_keys, enable_gqa)

    def of_before(q, k, v, starts, cu_keys, most, most_keys, *, scale, window_size):  # type: ignore[no-untyped-def]
        return of_today(q, k, v, starts, cu_keys, most, most_keys, scale=scale, window_size=window_size)

    monkeypatch.setattr(varlen, "varlen_attn", of_today if takes_groups else of_before)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, 7, 8, generator=generator) for heads in (4, 2, 2))
    # A row by itself, and a prompt that the other two share.
    layout = segments(np.array([4, 1, 1, 1]), np.array([0, 0, 4, 4]), np.array([0, 0, 1, 1]), device=CPU)
    found, expected = (
        packed_attention(nn.Module(), q, k, v, None, kernel=name, segments=layout)[0] for name in ("varlen", "sdpa")
    )
    torch.testing.assert_close(found, expected)


def test_passes_without_gradients_take_vllms_flash_attention_3_on_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of vLLM 0.32; PyTorch's attention stands in for what it computes."""
    layout = segments(np.array([4, 1, 1, 1]), np.array([0, 0, 4, 4]), np.array([0, 0, 1, 1]), device=CPU)
    calls = []

    def flash_attn_varlen_func(q, k, v, **options: Any) -> Tensor:  # type: ignore[no-untyped-def]
        calls.append(options)
        outs = []
        starts, cu_keys = (options[name].tolist() for name in ("cu_seqlens_q", "cu_seqlens_k"))
        for (q0, q1), (k0, k1) in zip(pairwise(starts), pairwise(cu_keys), strict=True):
            mask = causal_lower_right(q1 - q0, k1 - k0)
            heads = (states.transpose(0, 1)[None] for states in (q[q0:q1], k[k0:k1], v[k0:k1]))
            outs.append(scaled_dot_product_attention(*heads, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1))
        return torch.cat(outs)

    package = ModuleType("vllm.vllm_flash_attn")
    package.flash_attn_varlen_func = flash_attn_varlen_func  # type: ignore[attr-defined]
    package.is_fa_version_supported = lambda version: version == 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.vllm_flash_attn", package)
    monkeypatch.setattr(attention_kernels, "is_hopper", lambda device: True)
    attention_kernels.vllm_flash3.cache_clear()
    try:
        q, k, v = (torch.randn(1, heads, 7, 8) for heads in (4, 2, 2))
        with torch.no_grad():
            found = packed_attention(nn.Module(), q, k, v, None, kernel="varlen", segments=layout)[0]
        assert len(calls) == 1 and calls[0]["fa_version"] == 3 and calls[0]["causal"]
        expected = packed_attention(nn.Module(), q, k, v, None, kernel="sdpa", segments=layout)[0]
        torch.testing.assert_close(found, expected)
        with torch.enable_grad():
            assert attention_kernels.kernel_of_pass("varlen", GPU) is not attention_kernels._vllm_flash3
        package.is_fa_version_supported = lambda version: False  # type: ignore[attr-defined]
        attention_kernels.vllm_flash3.cache_clear()
        with torch.no_grad():
            assert attention_kernels.kernel_of_pass("varlen", GPU) is not attention_kernels._vllm_flash3
    finally:
        attention_kernels.vllm_flash3.cache_clear()


def test_vllms_flash_attention_takes_the_arguments_that_it_is_called_with() -> None:
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        pytest.skip("vllm is not installed")
    folder = Path(found.origin).parent / "vllm_flash_attn"  # it cannot be imported without a GPU
    functions = {
        node.name: {each.arg for each in node.args.args}
        for node in ast.parse((folder / "flash_attn_interface.py").read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    lengths = {"max_seqlen_q", "cu_seqlens_q", "max_seqlen_k", "cu_seqlens_k"}
    options = {"softmax_scale", "causal", "window_size", "fa_version"}
    assert lengths | options <= functions["flash_attn_varlen_func"]
    assert "fa_version" in functions["is_fa_version_supported"]
    names = {
        alias.name
        for node in ast.walk(ast.parse((folder / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {"flash_attn_varlen_func", "is_fa_version_supported"} <= names
