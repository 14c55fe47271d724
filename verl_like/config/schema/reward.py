"""The sections ``reward``, ``reward.model`` and ``reward.judge``: scoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_like.config.schema.fields import fraction, micro_batch_tokens, non_negative, option, positive
from verl_like.config.schema.fsdp import FsdpConfig
from verl_like.config.section import Section

ENVIRONMENT = "environment"  # value of reward.function: the environment alone gives rewards


def _is_on_failure(text: str) -> bool:
    kind, _, number = text.partition(":")
    if kind != "score":
        return text in ("mask", "abort")
    try:
        return abs(float(number)) < float("inf")
    except ValueError:
        return False


@dataclass(kw_only=True)
class RewardModelConfig(Section):
    """A sequence classifier whose one output is a response's score."""

    path: str = option("", "Folder or hub name of a sequence-classification model with one label; empty for none.")
    weight: float = option(1.0, "Weight of its score in the sum.", check=lambda v: v == v, expected="a number")
    placement: str = option(
        "colocated",
        "colocated runs on the hybrid workers and scores after the rollout; own runs on separate workers and scores "
        "during it.",
        choices=("colocated", "own"),
    )
    num_workers: int = positive(1, "Workers with placement=own; the model is sharded over them.", unit="workers")
    max_length: int = non_negative(
        0,
        "Longest prompt and response in the model's own tokens; longer ones are cut at the start. 0 means the "
        "model's limit.",
        unit="tokens",
    )
    max_tokens_per_micro_batch: str = micro_batch_tokens("forward")
    fsdp: FsdpConfig = option(FsdpConfig, "Sharding of the reward model.")


@dataclass(kw_only=True)
class JudgeConfig(Section):
    """A language model that judges responses, in separate engines."""

    path: str = option(
        "", "Folder or hub name of the judge; empty for none. For a served judge use reward.function=llm_judge."
    )
    weight: float = option(1.0, "Weight of its score in the sum.", check=lambda v: v == v, expected="a number")
    backend: str = option("vllm", "Engine of the judge.", choices=("vllm", "hf"))
    num_workers: int = positive(1, "Workers of the judge, a multiple of tensor_parallel_size.", unit="workers")
    tensor_parallel_size: int = positive(1, "Workers per engine.", unit="ranks")
    template: str = option(
        "", "Jinja template (text or path of a .jinja file) of the question; empty uses the built-in one."
    )
    score_pattern: str = option(
        "", "Regular expression; group 1 of its last match is the score. Empty uses the built-in template's."
    )
    max_score: float = positive(
        10.0, "Best verdict; scores are divided by it, and a verdict outside 0 to this is a failure."
    )
    temperature: float = non_negative(0.0, "Sampling temperature of the verdict; 0 is greedy.")
    max_tokens: int = positive(512, "Longest verdict.", unit="tokens")
    max_model_len: int = positive(8192, "Longest question plus verdict.", unit="tokens")
    gpu_memory_utilization: float = fraction(0.8, "Share of each GPU its engine may use (GPU only).")
    kv_cache_memory_gib: float = positive(0.25, "Key-value cache of its engine on CPU.", unit="GiB")


@dataclass(kw_only=True)
class RewardConfig(Section):
    function: str = option(
        "",
        "`path/to/file.py:name` of a scorer, or a built-in's name; empty chooses per row by data_source, or leaves it "
        "to environment.path.",
    )
    function_kwargs: dict[str, Any] = option({}, "Keyword arguments passed to the function with each sample.")
    functions: dict[str, Any] = option(
        {},
        "Several scorers instead of one: {name: {function: ..., weight: 1.0, kwargs: {...}}}; the score "
        "is their weighted sum.",
    )
    num_workers: int = positive(1, "Scorer processes, on all nodes.", unit="processes")
    timeout_s: float = positive(
        10.0, "Timeout of one sample; then the scorer is killed and the sample masked.", unit="seconds"
    )
    max_memory_gib: float = positive(
        4.0, "Address space that a scorer process may add after it has loaded its function.", unit="GiB"
    )
    max_concurrency: int = positive(32, "Concurrent calls of an async function in each scorer process.", unit="calls")
    on_failure: str = option(
        "mask",
        "Handling of a sample without a score: mask ignores it, score:<x> assigns x, abort ends the run.",
        check=_is_on_failure,
        expected="mask, abort, or score:<number>, e.g. score:-1",
    )
    max_failure_frac: float = fraction(
        0.5, "Share of failed samples, in a step or validation batch, above which the run ends."
    )
    try_first: bool = option(
        True, "Before models load, try the function on one sample of each data source and read every ground truth."
    )
    model: RewardModelConfig = option(RewardModelConfig, "A reward model; its score is added to the function's.")
    judge: JudgeConfig = option(JudgeConfig, "A judge in its own engines; its score is added to the function's.")
