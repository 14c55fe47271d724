"""What the adapter does to vLLM before it builds an engine."""

from __future__ import annotations

import pytest

internals = pytest.importorskip("verl_like.backends.vllm.internals", reason="vLLM is not installed")


def test_a_models_class_is_looked_at_without_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.models import ModelRegistry, registry

    def refuse(function: object) -> None:
        raise AssertionError("a process was asked")

    monkeypatch.setattr(registry, "_run_in_subprocess", refuse)
    monkeypatch.setattr(ModelRegistry, "models", dict(ModelRegistry.models))
    internals.inspect_here(["Qwen3ForCausalLM", "OfNobodyForCausalLM"])
    assert ModelRegistry.models["Qwen3ForCausalLM"].inspect_model_cls().is_text_generation_model
    assert "OfNobodyForCausalLM" not in ModelRegistry.models
