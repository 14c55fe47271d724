"""Layers that Liger's kernels compute: which, with what, and where they are refused. Its functions need a GPU, so here
are others with the names and arguments of liger-kernel 0.8.5.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from tests.unit._fsdp_ranks import FAMILIES, tiny_model
from verl_like.backends.fsdp.fused_layers import with_fused_layers

IDS = torch.arange(12)[None]


class LigerRMSNorm(nn.Module):
    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        offset: float = 0.0,
        casting_mode: str = "llama",
        in_place: bool = True,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon, self.offset, self.casting_mode, self.in_place = eps, offset, casting_mode, in_place

    def forward(self, hidden_states: Tensor) -> Tensor:
        assert self.casting_mode == "llama" and not self.offset and not self.in_place
        return nn.functional.rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)


class LigerSwiGLUMLP(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return found


@pytest.fixture
def liger(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("liger_kernel.transformers")
    package.LigerRMSNorm, package.LigerSwiGLUMLP = LigerRMSNorm, LigerSwiGLUMLP  # type: ignore[attr-defined]
    parent = ModuleType("liger_kernel")
    parent.__spec__ = ModuleSpec("liger_kernel", None)
    monkeypatch.setitem(sys.modules, "liger_kernel", parent)
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", package)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize(("family", "num_norms"), [("qwen2", 5), ("qwen3", 9), ("llama", 5)])
@torch.no_grad()
def test_every_norm_and_feed_forward_part_is_fused_and_computes_the_same(
    liger: None, family: str, num_norms: int
) -> None:
    model, plain = tiny_model(family, rms_norm_eps=0.1), tiny_model(family, rms_norm_eps=0.1)
    with_fused_layers(model)
    kinds = [type(layer) for layer in model.modules()]
    assert (kinds.count(LigerRMSNorm), kinds.count(LigerSwiGLUMLP)) == (num_norms, 2)
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == {
        name: tensor.shape for name, tensor in plain.state_dict().items()
    }
    torch.testing.assert_close(model(IDS).logits, plain(IDS).logits, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_feed_forward_part_with_another_activation_stays(liger: None) -> None:
    model, plain = (tiny_model("llama", hidden_act="gelu") for _ in range(2))
    with_fused_layers(model)
    assert LigerSwiGLUMLP not in map(type, model.modules())
    torch.testing.assert_close(model(IDS).logits, plain(IDS).logits, atol=1e-5, rtol=0)


def test_a_family_whose_layers_are_others_is_refused(liger: None) -> None:
    with pytest.raises(ValueError, match=r"Gemma3ForCausalLM has no layer that these kernels compute.*kernels=torch"):
        with_fused_layers(FAMILIES["gemma3"]())


def test_by_default_layers_are_fused_where_that_is_possible(liger: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fused, other = tiny_model("qwen3"), FAMILIES["gemma3"]()
    for model in (fused, other):
        with_fused_layers(model, is_required=False)
    assert LigerRMSNorm in map(type, fused.modules()) and LigerRMSNorm not in map(type, other.modules())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    on_cpu = tiny_model("qwen3")
    with_fused_layers(on_cpu, is_required=False)
    assert LigerRMSNorm not in map(type, on_cpu.modules())


def test_a_liger_that_cannot_be_imported_is_reported_and_left_out(
    liger: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", None)  # its import raises ImportError
    model = tiny_model("qwen3")
    with_fused_layers(model, is_required=False)
    assert LigerRMSNorm not in map(type, model.modules())
    assert "liger-kernel cannot be imported" in caplog.text and "The layers are not fused." in caplog.text
    with pytest.raises(ValueError, match="liger-kernel cannot be imported"):
        with_fused_layers(model)


def test_without_a_gpu_or_without_liger_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"liger, which needs a GPU.*Set model\.kernels=torch"):
            with_fused_layers(tiny_model("llama"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    with pytest.raises(ValueError, match=r"liger-kernel cannot be imported.*pip install liger-kernel"):
        with_fused_layers(tiny_model("llama"))
