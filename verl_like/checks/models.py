"""Rules on models: they exist, and they fit the rows, the engine and each other.

The rules read a model's ``config.json`` as JSON, from a local folder or from the hub's cache. Other hub names are
unknown until the models load.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_like.checks.families import wrong_kind
from verl_like.checks.gpus import Gpus
from verl_like.checks.paths import is_local_path, missing_folder
from verl_like.checks.weights import cut_off, tensors
from verl_like.config.schema import Config
from verl_like.remote import is_remote, unreadable_kind
from verl_like.remote_models import copied_folder, lacking_in, weights_in

# Head sizes that vLLM's CPU kernels support (0.32); a test compares them with the installed vLLM.
CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
# Names of the field with the longest sequence; the smallest value counts, as in vLLM.
_POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# Families whose heads divide the hidden size; others have their own width if config.json states none.
_DERIVED_HEADS = ("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "phi", "phi3", "gpt_neox", "opt", "starcoder2")
_LOGIT_SCALES = ("logit_scale", "logits_scaling", "final_logit_scaling")  # applied after the output layer
_WITH_SINKS = ("gpt_oss",)
# For these kinds of RoPE scaling, config.json has the scaled length; for others, the factor is applied, as in vLLM.
_SCALED_ALREADY = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")


def _used(config: Config) -> dict[str, str]:
    """Return {option: path or hub name} of the models that read whole rows."""
    named = {
        "model.path": config.model.path,
        "critic.path": config.critic.path,
        "ref.path": config.ref.path,
        **{f"ref.teachers.{name}": path for name, path in config.ref.teachers.items()},
        "dpo.ref_path": config.dpo.ref_path,
    }
    return {name: path for name, path in named.items() if path}


def named_models(config: Config) -> dict[str, str]:
    """Return {option: path or hub name} of all models of a run."""
    reward = config.reward
    scoring = {"reward.model.path": reward.model.path, "reward.judge.path": reward.judge.path}
    return {**_used(config), **{name: path for name, path in scoring.items() if path}}


def _folder(path: str) -> Path:
    """Return a model's folder on this machine: a local folder, the copy of a URL, or a snapshot in the hub's cache.

    The folder may not exist.
    """
    if is_remote(path):
        return copied_folder(path)
    if is_local_path(path):
        return Path(path).expanduser()
    return hub_cache(path)


def hub_cache(name: str) -> Path:
    """Return the model's folder in the hub's cache, which does not exist if the model is not cached."""
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    cached = Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser() / f"models--{name.replace('/', '--')}"
    revision = cached / "refs/main"
    return cached / "snapshots" / (revision.read_text().strip() if revision.is_file() else "none")


def config_of(path: str, override: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Return the text part of a model's ``config.json`` with ``override`` applied; empty if it is unknown."""
    read = {**own_config(path), **(override or {})}
    inner = read.get("text_config")
    return {**read, **inner} if isinstance(inner, dict) else read


def own_config(path: str) -> Mapping[str, Any]:
    """Return a model's whole ``config.json``; empty if it is unknown."""
    return _read(str(_folder(path) / "config.json"))


def _read(file: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(file).read_text())
    except (OSError, ValueError):  # another rule reports a missing or broken file
        return {}
    return found if isinstance(found, dict) else {}


def model_is_named(config: Config, gpus: Gpus) -> Iterator[str]:
    if not config.model.path:
        yield (
            "model.path is empty, but there is no default model. Set model.path to a folder or a hub name, e.g. "
            "model.path=Qwen/Qwen3-0.6B."
        )


def models_are_of_text(config: Config, gpus: Gpus) -> Iterator[str]:
    for name, path in named_models(config).items():
        is_classifier, trusts_code = name == "reward.model.path", config.model.trust_remote_code
        problem = wrong_kind(
            own_config(path),
            is_classifier=is_classifier,
            trusts_code=trusts_code,
            may_read_pictures=name == "model.path",
        )
        if problem:
            yield f"{name} is {path}, {problem}"


def models_exist(config: Config) -> Iterator[str]:
    command = config.trainer.prepare_command
    for name, path in named_models(config).items():
        problem = (
            unreadable_kind(name, path)
            if is_remote(path)
            else missing_folder(name, path, needs_file="config.json", prepare_command=command)
        )
        if problem:
            yield problem
        elif is_local_path(path):
            yield from _incomplete_model(name, path)
    tokenizer = config.model.tokenizer_path
    if tokenizer:
        name, file = "model.tokenizer_path", "tokenizer_config.json"
        problem = (
            unreadable_kind(name, tokenizer)
            if is_remote(tokenizer)
            else missing_folder(name, tokenizer, needs_file=file, prepare_command=command)
        )
        if problem:
            yield problem


def _incomplete_model(name: str, path: str) -> Iterator[str]:
    folder = _folder(path)
    if not _read(str(folder / "config.json")) and (folder / "config.json").read_text().strip() != "{}":
        yield f"{name} is {path}, whose config.json is not a JSON mapping. Copy the model again, or name another."
    if lacking := lacking_in(folder):
        yield f"{name} is {path}, a folder without {lacking}"
        return
    broken = [f"{file.name} {reason}" for file in weights_in(folder) if (reason := cut_off(file))]
    yield from (f"{name} is {path}, whose {reason}. Copy the model again." for reason in broken)
    if not broken and (other := _of_another_model(folder)):
        yield f"{name} is {path}, whose weights do not match its config.json: {other}. Copy it again."


def _of_another_model(folder: Path) -> str | None:
    """Return how the embedding in the files differs from config.json; None if it matches or is unknown."""
    model = config_of(str(folder))
    if model.keys() & {"word_embed_proj_dim", "embedding_size"}:  # embeddings narrower than the model
        return None
    expected = [model.get("vocab_size"), model.get("hidden_size")]
    for file in weights_in(folder):
        for name, tensor in tensors(file).items():
            if name.endswith("embed_tokens.weight") and None not in expected and tensor["shape"] != expected:
                return f"{name} is {tensor['shape']}, and vocab_size and hidden_size are {expected}"
    return None


def rows_fit_the_models(config: Config, gpus: Gpus) -> Iterator[str]:
    data = config.data
    longest = data.max_prompt_length + data.max_response_length
    for name, path in _used(config).items():
        limit, field = _positions(config_of(path, config.model.override_config))
        if limit is not None and longest > limit:
            remaining = int(limit) - data.max_prompt_length
            shorter = f"data.max_response_length={remaining}"
            if remaining < limit / 4:
                shorter = f"data.max_prompt_length={int(limit) // 2} and data.max_response_length={int(limit) // 2}"
            yield (
                f"data.max_prompt_length={data.max_prompt_length} + data.max_response_length="
                f"{data.max_response_length} are {longest} tokens, but {name}={path} reads at most {limit:g} ({field} "
                f"in its config.json). Shorten the rows, e.g. {shorter}, or use a model with a longer context."
            )
    judge = config.reward.judge
    if judge.path:
        limit, field = _positions(config_of(judge.path))
        if limit is not None and judge.max_model_len > limit:
            yield (
                f"reward.judge.max_model_len is {judge.max_model_len}, but reward.judge.path={judge.path} reads at "
                f"most {limit:g} tokens ({field} in its config.json). Set reward.judge.max_model_len={limit:g} or less."
            )


def teachers_rows_fit_the_policy(config: Config, gpus: Gpus) -> Iterator[str]:
    """A teacher that is a version of the policy reads longer rows."""
    data, path = config.data, config.model.path
    if not (config.algorithm.self_distillation and path):
        return
    longest = config.longest_teacher_prompt + data.max_response_length
    limit, field = _positions(config_of(path, config.model.override_config))
    if limit is None or longest <= limit or data.max_prompt_length + data.max_response_length > limit:
        return  # in the last case rows_fit_the_models reports it
    remaining = int(limit) - data.max_prompt_length - data.max_response_length
    smaller = (
        f"Set data.max_privileged_context_length={remaining} or less"
        if remaining > 0
        else f"Lower data.max_prompt_length or data.max_response_length by {longest - int(limit)}"
    )
    yield (
        f"data.max_prompt_length={data.max_prompt_length} + data.max_privileged_context_length="
        f"{data.max_privileged_context_length} + data.max_response_length={data.max_response_length} are {longest} "
        f"tokens, but model.path={path} reads at most {limit:g} ({field} in its config.json). "
        f"{smaller}, or use a model with a longer context."
    )


def _positions(model: Mapping[str, Any]) -> tuple[float | None, str]:
    """Return the longest sequence that a model reads and the field that states it; None if no field does."""
    stated = {key: model[key] for key in _POSITIONS if isinstance(model.get(key), int)}
    if not stated:
        return None, ""
    field = min(stated, key=lambda key: stated[key])
    limit = float(stated[field])
    rope = model.get("rope_parameters") or model.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else "default"
    if "gemma3" not in str(model.get("model_type")) and isinstance(rope, dict) and kind not in _SCALED_ALREADY:
        limit *= float(rope.get("factor") or 1.0)
    own = model.get("model_max_length")  # an additional field of some families
    return (max(limit, float(own)), field) if isinstance(own, int) else (limit, field)


def model_features_are_supported(config: Config, gpus: Gpus) -> Iterator[str]:
    """Yield a problem for each model feature that the log-probs or the attention here would silently ignore."""
    for name, path in _used(config).items():
        model = config_of(path, config.model.override_config)
        scales = {key: model[key] for key in _LOGIT_SCALES if model.get(key) not in (None, 1, 1.0)}
        if scales:
            yield (
                f"{name}={path} scales its logits ({', '.join(f'{key}={scales[key]}' for key in scales)} in its "
                "config.json), which the log-probs here ignore. Take a model of another family."
            )
        if model.get("quantization_config"):
            yield f"{name}={path} has quantised weights, expected plain floating point. Name a model without them."
        if model.get("model_type") in _WITH_SINKS:
            yield f"{name}={path} has attention sinks, which are not supported. Take a model of another family."
        if config.model.remove_padding and model.get("attn_logit_softcapping"):
            yield (
                f"{name}={path} caps its attention (attn_logit_softcapping={model['attn_logit_softcapping']} in its "
                "config.json), which attention over packed rows does not support. Set model.remove_padding=false."
            )


def heads_divide_evenly(config: Config, gpus: Gpus) -> Iterator[str]:
    for name, own_path, size in (
        ("actor", "", config.actor.sequence_parallel_size),
        *(("ref", path, config.ref.sequence_parallel_size) for path in config.ref.teacher_models or [config.ref.path]),
        ("critic", config.critic.path, config.critic.sequence_parallel_size),
    ):
        path = own_path or config.model.path
        heads = config_of(path, config.model.override_config).get("num_attention_heads") if path else None
        if isinstance(heads, int) and heads % size:
            nearest = max(divisor for divisor in range(1, size) if heads % divisor == 0)
            yield (
                f"{name}.sequence_parallel_size is {size}, which does not divide the {heads} attention heads of "
                f"{path}. Set {name}.sequence_parallel_size={nearest}."
            )


def heads_fit_the_engine(config: Config, gpus: Gpus) -> Iterator[str]:
    rollout, judge = config.rollout, config.reward.judge
    on_cpu = gpus.runs_on_gpu(config) is False
    for name, path, override, section, backend, size in (
        (
            "model.path",
            config.model.path,
            config.model.override_config,
            "rollout",
            rollout.backend,
            rollout.tensor_parallel_size,
        ),
        ("reward.judge.path", judge.path, {}, "reward.judge", judge.backend, judge.tensor_parallel_size),
    ):
        model = config_of(path, override) if path else {}
        heads = model.get("num_attention_heads")
        if backend != "vllm" or not isinstance(heads, int):
            continue
        width = model.get("head_dim") or (
            int(model.get("hidden_size", 0)) // heads if model.get("model_type") in _DERIVED_HEADS else 0
        )
        if on_cpu and width and "kv_lora_rank" not in model and width not in CPU_HEAD_SIZES:
            yield (
                f"the attention heads of {name}={path} have {width} dimensions, but vLLM on CPU has kernels for "
                f"{', '.join(map(str, CPU_HEAD_SIZES))}. Set {section}.backend=hf, or run on a GPU."
            )
        if heads % size:
            nearest = max(divisor for divisor in range(1, size) if heads % divisor == 0)
            yield (
                f"{section}.tensor_parallel_size is {size}, which does not divide the {heads} attention heads of "
                f"{name}={path}. Set {section}.tensor_parallel_size={nearest}."
            )


def models_share_the_tokenizer(config: Config, gpus: Gpus) -> Iterator[str]:
    """Yield a problem for each model whose tokens differ from the tokenizer's, or that lacks embeddings for its ids."""
    tokenizer = config.model.tokenizer
    own = _folder(tokenizer) / "tokenizer.json"
    if not own.is_file():
        return
    tokens = _tokens(str(own))
    for name, path in _used(config).items():
        other_tokens = _tokens(str(_folder(path) / "tokenizer.json"))
        differing = sorted(i for i in tokens.keys() & other_tokens.keys() if tokens[i] != other_tokens[i])
        if differing:
            first = differing[0]
            yield (
                f"{name} is {path}, to which {len(differing)} token ids of the tokenizer {tokenizer} mean other text "
                f"({first} is {other_tokens[first]!r} there and {tokens[first]!r} here). Set {name} to a model with "
                f"this tokenizer."
            )
            continue
        size, num_ids = config_of(path).get("vocab_size"), max(tokens, default=-1) + 1
        if isinstance(size, int) and size < num_ids:
            yield (
                f"{name} is {path}, which has embeddings of {size} tokens (vocab_size in its config.json), but the "
                f"tokenizer {tokenizer} makes ids up to {num_ids - 1}. Set {name} to a model with this tokenizer."
            )


def _tokens(file: str) -> dict[int, str]:
    """Return {id: token} of a ``tokenizer.json``; empty if it is missing or of another format."""
    try:
        found = json.loads(Path(file).read_text())
        words = found["model"]["vocab"]
        tokens = (
            {i: word for word, i in words.items()} if isinstance(words, dict) else dict(enumerate(w for w, _ in words))
        )
        return tokens | {added["id"]: added["content"] for added in found.get("added_tokens", [])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


MODEL_RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (
    model_is_named,
    models_are_of_text,
    rows_fit_the_models,
    teachers_rows_fit_the_policy,
    model_features_are_supported,
    heads_divide_evenly,
    heads_fit_the_engine,
    models_share_the_tokenizer,
)
