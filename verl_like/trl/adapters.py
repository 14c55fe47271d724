"""peft's LoraConfig as options, without importing peft."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

DEFAULT_TARGETS = ("q_proj", "v_proj")  # peft's choice for Llama, Qwen, Mistral and Gemma
TRANSLATED = ("r", "lora_alpha", "target_modules")
# Fields without a meaning for a run: notes of peft, and dropout, which no model has here.
WITHOUT_MEANING = (
    *("task_type", "peft_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision"),
    *("inference_mode", "lora_dropout", "runtime_config"),
)


def lora_options(peft_config: Any) -> dict[str, Any]:
    """Return the options ``model.lora.*`` of a LoraConfig.

    Raises:
        ValueError: it is another object, or sets a field that has no equivalent.
    """
    if peft_config is None:
        return {}
    if not is_dataclass(peft_config) or not set(TRANSLATED) <= vars(peft_config).keys():
        raise ValueError(f"peft_config is a {type(peft_config).__name__}; expected peft's LoraConfig.")
    values = vars(peft_config)
    ignored = (*TRANSLATED, *WITHOUT_MEANING)
    others = {
        each.name: values[each.name]
        for each in fields(peft_config)
        if each.name not in ignored and each.name in values and values[each.name] != _default(each)
    }
    if others:
        named = ", ".join(f"{name}={value!r}" for name, value in others.items())
        raise ValueError(f"peft_config sets {named}; expected only {', '.join(TRANSLATED)}. Leave the others out.")
    targets = values["target_modules"]
    if isinstance(targets, str) and targets != "all-linear":
        raise ValueError(f"peft_config.target_modules is {targets!r}; expected all-linear, or a list of names.")
    names = [targets] if isinstance(targets, str) else sorted(targets or DEFAULT_TARGETS)
    return {"model.lora.rank": values["r"], "model.lora.alpha": values["lora_alpha"], "model.lora.targets": names}


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()
