"""Check of a model's kind by its ``config.json``: text language models and some vision-language models."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Fields of models that read other inputs than text.
_OF_PICTURES = ("vision_config", "visual", "vision_tower", "mm_vision_tower", "image_token_id", "image_token_index")
PICTURE_FAMILIES = ("qwen2_5_vl", "qwen3_vl", "llava")  # model types that were run with pictures
_OF_SOUND = ("audio_config", "audio_token_id", "speech_config")
_REMEDY = "Name a text-only language model, e.g. Qwen/Qwen3-0.6B"


def reads_pictures(model: Mapping[str, Any]) -> bool:
    """Return whether a model is of a family that may be trained on pictures; ``model`` is its ``config.json``."""
    return model.get("model_type") in PICTURE_FAMILIES


def wrong_kind(
    model: Mapping[str, Any], *, is_classifier: bool, trusts_code: bool, may_read_pictures: bool = False
) -> str | None:
    """Return why a model's kind is not supported, to follow its name; None if it is supported or unknown.

    Args:
        model: the content of its ``config.json``.
        is_classifier: whether the model has to score text instead of generating it.
        trusts_code: whether the model's own code may run.
        may_read_pictures: whether a vision-language model may have this part in a run.
    """
    if may_read_pictures and reads_pictures(model):
        return None
    kind, name = model.get("model_type"), ", ".join(map(str, model.get("architectures") or [])) or "of no stated class"
    senses = {"pictures": _OF_PICTURES, "sound": _OF_SOUND}
    for sense, fields in senses.items():
        if found := next((field for field in fields if model.get(field) not in (None, {}, [], "")), None):
            others = f", or a policy of the types {', '.join(PICTURE_FAMILIES)}" * (sense == "pictures")
            return f"which reads {sense} ({name}, with {found} in its config.json). {_REMEDY}{others}."
    if model.get("is_encoder_decoder"):
        return f"which is an encoder-decoder model ({name}), expected a decoder-only model. {_REMEDY}."
    if not isinstance(kind, str):
        return None
    if kind in _families("MASKED_LM") and not model.get("is_decoder"):
        return f"which is an encoder ({name}) and generates no text, expected a decoder-only model. {_REMEDY}."
    task, auto = (
        ("SEQUENCE_CLASSIFICATION", "AutoModelForSequenceClassification")
        if is_classifier
        else ("CAUSAL_LM", "AutoModelForCausalLM")
    )
    known = _families(task)
    if not known or kind in known:
        return None
    code = model.get("auto_map")
    if isinstance(code, dict) and auto in code:
        if trusts_code:
            return None
        return f"which needs its own code ({code[auto]}). Set model.trust_remote_code=true."
    what = "text classifier" if is_classifier else "language model"
    return f"which is a {kind} ({name}), which the installed transformers does not support as a {what}. {_REMEDY}."


@functools.cache
def _families(task: str) -> frozenset[str]:
    """Return the model types for which transformers has a class of this task; empty if they are not found.

    They are read from the source of transformers, because importing it takes seconds.
    """
    spec = importlib.util.find_spec("transformers")
    file = Path(spec.origin).parent / "models/auto/modeling_auto.py" if spec is not None and spec.origin else None
    for node in ast.parse(file.read_text()).body if file is not None and file.is_file() else ():
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or not node.value.args:
            continue
        if any(
            isinstance(target, ast.Name) and target.id == f"MODEL_FOR_{task}_MAPPING_NAMES" for target in node.targets
        ):
            return frozenset(_keys(node.value.args[0]))
    return frozenset()


def _keys(pairs: ast.expr) -> list[str]:
    entries = pairs.elts if isinstance(pairs, ast.List) else []
    first = [entry.elts[0] for entry in entries if isinstance(entry, ast.Tuple)]
    return [key.value for key in first if isinstance(key, ast.Constant) and isinstance(key.value, str)]
