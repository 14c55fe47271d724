"""The bytes that are counted on the meta device, against those of the same modules with values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from transformers import PreTrainedConfig

from benchmarks._allocated import allocated
from tests.families.models import FAMILIES, SHAPE
from verl_like.backends.fsdp.loading import skeleton
from verl_like.backends.pictures import generator_class
from verl_like.plan.live_bytes import LiveBytes

ROWS, TOKENS = 8, 128
MAX_ERROR = 0.08  # torch also counts what kernels take inside, and the tracker counts arguments until they are replaced


def layer_of(family: str, *, device: str) -> tuple[nn.Module, PreTrainedConfig]:
    """Return the last layer of a small model."""
    config = FAMILIES[family].config(**SHAPE, vocab_size=64, eos_token_id=1, pad_token_id=0)
    if device == "meta":
        model: Any = skeleton(
            generator_class(config), config, attention="sdpa", dtype=torch.float32, trust_remote_code=False
        )
    else:
        torch.manual_seed(0)
        model = generator_class(config).from_config(config)
    layer: nn.Module = model.base_model.layers[-1]
    return layer, config


def run(layer: nn.Module, config: Any, device: str, live: LiveBytes | None = None) -> list[int]:
    """Run forward and backward; return the moments before, between and after them."""
    width = getattr(config, "qk_rope_head_dim", None) or config.head_dim
    states = torch.randn(ROWS, TOKENS, config.hidden_size, device=device, requires_grad=True)
    angles = torch.ones(1, TOKENS, width, device=device)
    moments = [live.now() if live else 0]
    found = layer(states, attention_mask=None, position_embeddings=(angles, angles))
    moments.append(live.now() if live else 0)
    edge, gradient = get_gradient_edge(found), torch.ones_like(found)
    del found
    torch.autograd.backward([edge], [gradient])
    return [*moments, live.now() if live else 0]


@pytest.mark.parametrize("family", ["Qwen3", "Qwen3-MoE", "Mixtral", "DeepSeek-V3"])
def test_a_layer_on_the_meta_device_has_the_live_bytes_of_a_layer_with_values(family: str) -> None:
    found: dict[str, list[int]] = {}
    for device in ("meta", "cpu"):
        layer, config = layer_of(family, device=device)
        with LiveBytes() as live:
            live.watch(layer)
            begin, between, end = run(layer, config, device, live)
        kept = live.level(between) - live.level(begin)
        peaks = [live.peak(*when) for when in ((begin, between), (between, end))]
        found[device] = [kept, *peaks, live.peak(between, end, gradients="added"), live.gradient_bytes]
        learning = sum(p.numel() for p in layer.parameters() if p.requires_grad)
        assert live.gradient_bytes == torch.float32.itemsize * learning
    assert found["meta"] == found["cpu"]
    counted = allocated(lambda: run(layer, config, "cpu"))  # of the one with values
    assert found["cpu"][3] == pytest.approx(counted, rel=MAX_ERROR), "gradients are there since the first pass"


def test_storages_count_until_their_last_reference_is_gone() -> None:
    outside = torch.empty(10, device="meta")
    with LiveBytes() as live:
        first = outside + 1
        view = first[2:]
        at_first = live.now()
        second = first * view.sum()
        del first
        assert live.level(live.now()) == 4 * (10 + 10), "a view keeps the storage of what it shows"
        del view
        assert live.level(live.now()) == 4 * 10
        assert live.peak(at_first) == 4 * (10 + 1 + 10)
        del second
        assert live.level(live.now()) == 0
    assert live.level(at_first) == 4 * 10


def test_gradients_are_kept_or_added_or_ignored() -> None:
    layer = nn.Linear(30, 20, bias=False, device="meta")
    states = torch.empty(5, 30, device="meta")
    with LiveBytes() as live:
        live.watch(layer)
        layer(states).sum().backward()
    end, weight = live.now(), 4 * 600
    assert live.gradient_bytes == weight
    assert live.level(end) == weight
    assert live.level(end, gradients="added") == live.level(end, gradients="ignored") == 0
    assert live.peak(0, gradients="added") == live.peak(0) >= weight
    assert live.peak(0, gradients="ignored") < weight


def test_masks_with_values_select_on_the_meta_device() -> None:
    states, mask = torch.empty(6, 8, device="meta"), torch.tensor([True, False, True, True, False, False])
    with LiveBytes():
        assert states[mask].shape == (3, 8)
        assert mask.to(states.device).sum() == 3
