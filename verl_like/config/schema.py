"""Every knob once: type, default, unit and one sentence.

Dataclasses own defaults; the YAML files under ``conf/`` own choices. A value that cannot be right by itself
is refused by its ``check``; rules that span sections live in :mod:`verl_like.checks.rules`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from verl_like.config.section import Section

Check = Callable[[Any], bool]


def knob(
    default: Any,
    doc: str,
    *,
    unit: str = "",
    choices: tuple[str, ...] = (),
    check: Check | None = None,
    expected: str = "",
) -> Any:
    """A dataclass field that carries its own documentation and its own check.

    Args:
        default: the value when nobody sets it; lists and dicts are copied for each instance.
        doc: one sentence for the user.
        unit: "tokens", "seconds", "GiB", ...
        choices: the literal values allowed, when the knob is an enumeration.
        check: true for values that can work; ``expected`` says in words what it accepts.
    """
    metadata = {"doc": doc, "unit": unit, "choices": choices, "check": check, "expected": expected}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def _positive(default: Any, doc: str, *, unit: str = "") -> Any:
    return knob(default, doc, unit=unit, check=lambda v: 0 < v < math.inf, expected="a number above 0")


def _non_negative(default: Any, doc: str, *, unit: str = "") -> Any:
    return knob(default, doc, unit=unit, check=lambda v: v >= 0, expected="a number of at least 0")


def _every_so_many(doc: str) -> Any:
    return knob(0, doc, unit="steps", check=lambda v: v >= -1, expected="a number of at least -1")


def _tokens_per_micro_batch(passes: str) -> Any:
    return knob(
        "auto",
        f"Token budget of one {passes} pass per rank; auto is 1,024 to 2,048 on CPU, and more on GPU.",
        unit="tokens",
        check=lambda v: v == "auto" or (str(v).isdecimal() and int(v) > 0),
        expected="auto, or a number above 0",
    )


def _sequence_parallel_size() -> Any:
    return _positive(
        1, "Ranks that share the tokens of their rows in every pass (Ulysses), for rows too long for one.", unit="ranks"
    )


def _max_samples(doc: str) -> Any:
    return knob(-1, doc, unit="rows", check=lambda v: v == -1 or v > 0, expected="-1, or a number above 0")


def _fraction(default: Any, doc: str) -> Any:
    return knob(default, doc, check=lambda v: 0 <= v <= 1, expected="a number from 0 to 1")


CURRICULUM = "curriculum"  # the sampler of ours


@dataclass(kw_only=True)
class CurriculumConfig(Section):
    """Which prompts ``data.sampler=curriculum`` draws, by the mean score of their responses so far."""

    low: float = knob(0.2, "Mean score from which a prompt is not too hard; of scores from 0 to 1, a pass rate.")
    high: float = knob(0.8, "Mean score up to which a prompt is not too easy.")
    unseen_frac: float = _fraction(
        0.5,
        "Share of a batch for prompts that were never drawn, while there are any; 1 draws all before any comes again.",
    )
    outside_weight: float = _positive(
        0.1, "Weight with which a prompt outside of low and high comes again; one inside has 1."
    )
    newest_frac: float = knob(
        0.5,
        "What the newest visit counts in a prompt's mean score; the mean before it has the rest.",
        check=lambda v: 0 < v <= 1,
        expected="a number above 0, up to 1",
    )


@dataclass(kw_only=True)
class DataConfig(Section):
    train_files: list[str] = knob(
        [], "Training rows: parquet or jsonl files, or Hugging Face datasets as hf:NAME[:CONFIGURATION]:SPLIT."
    )
    train_weights: list[float] = knob(
        [],
        "Shares of train_files in every batch, a number for each file, e.g. [2, 1]; an epoch then has as many prompts "
        "as there are rows in all. Empty takes each row once an epoch.",
        check=lambda v: all(isinstance(w, (int, float)) and 0 < w < float("inf") for w in v),
        expected="a list of numbers above 0",
    )
    val_files: list[str] = knob([], "Held-out rows for validation, named in the same ways.")
    custom_dataset: str = knob(
        "",
        "`path/to/file.py:name` of a function or class that makes the rows of each entry of train_files and val_files, "
        "in place of reading files.",
    )
    custom_dataset_kwargs: dict[str, Any] = knob({}, "Keyword arguments passed to it with each entry.")
    train_max_samples: int = _max_samples(
        "Rows of train_files that are trained on, -1 for all: a choice by trainer.seed under shuffle, else the first "
        "ones; made of all files together, before long prompts are dropped."
    )
    val_max_samples: int = _max_samples(
        "The same of val_files, but that the choice is the same whatever trainer.seed is."
    )
    prompt_key: str = knob("prompt", "Column with the prompt: a chat list of {role, content} or a plain string.")
    answer_key: str = knob(
        "answer", "Column with the ground truth where rows have no reward_model.ground_truth; also the target of `sft`."
    )
    data_source: str = knob("default", "Name given to rows that carry no data_source column.")
    train_batch_size: int = _positive(32, "Prompts per step.", unit="prompts")
    val_batch_size: int = _positive(1024, "Prompts per validation rollout call.", unit="prompts")
    max_prompt_length: int = _positive(512, "Longest prompt kept.", unit="tokens")
    max_response_length: int = _positive(512, "Longest response generated.", unit="tokens")
    overlong_prompts: str = knob(
        "error",
        "What happens to a prompt longer than max_prompt_length; truncate keeps its end.",
        choices=("error", "drop", "truncate"),
    )
    sampler: str = knob(
        "",
        "In place of shuffle and train_weights: curriculum, or `path/to/file.py:name` of a function that orders the "
        "rows of an epoch or of a class that chooses the rows of each batch.",
    )
    sampler_kwargs: dict[str, Any] = knob({}, "Keyword arguments passed to a sampler of one's own.")
    curriculum: CurriculumConfig = knob(CurriculumConfig, "What data.sampler=curriculum draws.")
    shuffle: bool = knob(True, "Shuffle the training rows anew each epoch, from trainer.seed.")
    apply_chat_template: bool = knob(
        True, "Render prompts with the tokenizer's chat template; false feeds plain strings as they are."
    )
    chat_template_kwargs: dict[str, Any] = knob(
        {}, "Extra variables for the chat template, e.g. {enable_thinking: false}."
    )
    format_prompt: str = knob(
        "", "Jinja template (text or path of a .jinja file) around the user's text; the text is {{ content }}."
    )


@dataclass(kw_only=True)
class LoraConfig(Section):
    """Adapters without dropout, like everything here: rollout and update are the same function."""

    rank: int = _non_negative(
        0, "Rank of adapters beside the model's linear layers, which then alone learn; 0 has all weights learn."
    )
    alpha: int = _positive(16, "What an adapter adds is scaled by alpha / rank.")
    targets: list[str] = knob(
        ["all-linear"], "Layers that have adapters: all-linear (all but the output layer), or names such as q_proj."
    )


@dataclass(kw_only=True)
class ModelConfig(Section):
    path: str = knob("", "Folder, hub name or URL (s3://...) of the Hugging Face model.")
    tokenizer_path: str = knob("", "Folder or hub name of the tokenizer; empty means model.path.")
    trust_remote_code: bool = knob(False, "Allow code that comes with the model to run.")
    override_config: dict[str, Any] = knob(
        {}, "Fields of the Hugging Face config to replace, e.g. {attention_dropout: 0.0}."
    )
    remove_padding: bool = knob(True, "Pack rows to one sequence without padding; results do not change, speed does.")
    share_prompts: bool = knob(
        True,
        "Compute a prompt once for all packed responses to it in a forward pass; results do not change, speed does.",
    )
    gradient_checkpointing: str = knob(
        "auto",
        "Recompute layer activations in the backward pass: a third more compute for a small part of the memory; auto "
        "does so on GPUs.",
        choices=("auto", "true", "false"),
    )
    attention: str = knob(
        "auto",
        "Kernel of packed attention; auto takes the best that is installed: on Hopper flash3 (FlashAttention 3), else "
        "flash (2), else PyTorch's.",
        choices=("auto", "flash3", "flash", "varlen", "sdpa"),
    )
    kernels: str = knob(
        "torch",
        "Who computes norms and gated feed-forward parts of models that run forward here: liger takes Liger's fused "
        "kernels (GPU only).",
        choices=("torch", "liger"),
    )
    float32_logits: bool = knob(
        False,
        "Leave the logits of actor and reference in the float32 of their sums where the model computes in bfloat16, "
        "instead of rounding them to it.",
    )
    lora: LoraConfig = knob(LoraConfig, "Adapters that learn instead of the weights of actor and critic.")

    @property
    def tokenizer(self) -> str:
        """Where the tokenizer lies: ``tokenizer_path``, or beside the model."""
        return self.tokenizer_path or self.path


@dataclass(kw_only=True)
class OptimConfig(Section):
    lr: float = _positive(1e-6, "Peak learning rate of AdamW.")
    weight_decay: float = _non_negative(0.0, "Decoupled weight decay.")
    beta1: float = _fraction(0.9, "AdamW's first-moment decay.")
    beta2: float = _fraction(0.999, "AdamW's second-moment decay.")
    eps: float = _positive(1e-8, "AdamW's denominator term.")
    max_grad_norm: float = _positive(1.0, "Global gradient norm above which gradients are scaled down.")
    schedule: str = knob(
        "constant", "Shape of the learning rate after warm-up.", choices=("constant", "linear", "cosine")
    )
    warmup_steps: int = _non_negative(0, "Optimiser updates over which the rate rises linearly from 0.", unit="updates")
    warmup_frac: float = _fraction(0.0, "The same as a fraction of all updates; where warmup_steps is 0.")
    min_lr_ratio: float = _fraction(0.0, "Where linear and cosine end, as a fraction of lr.")
    offload: bool = knob(False, "Keep optimiser state in host memory but for the optimiser's step (GPU only).")


@dataclass(kw_only=True)
class FsdpConfig(Section):
    param_dtype: str = knob(
        "auto",
        "Dtype of parameters in forward and backward; auto is float32 on CPU and bfloat16 on GPU "
        "(master weights are float32).",
        choices=("auto", "float32", "bfloat16"),
    )
    shard_size: str = knob(
        "auto",
        "Ranks that a model is cut over: all, or so many that each such group has a copy (HSDP), or "
        "1, which gives each rank a replica; auto is 1 for small models on CPU, else all.",
        unit="ranks",
        check=lambda v: v in ("auto", "all") or (str(v).isdecimal() and int(v) > 0),
        expected="auto, all, or a number above 0",
    )
    num_kept_layers: str = knob(
        "0",
        "Last decoder layers whose gathered parameters stay from forward to backward, which begins with them: memory "
        "for a gather each; all keeps those of every layer.",
        unit="layers",
        check=lambda v: v == "all" or str(v).isdecimal(),
        expected="all, or a number of at least 0",
    )
    num_prefetched_layers: int = _non_negative(
        0,
        "Decoder layers whose parameters are gathered ahead of the one that runs, forward and backward: more memory, "
        "for links that cannot keep up; 0 leaves it to FSDP2, which is about one layer ahead.",
        unit="layers",
    )
    offload_params: bool = knob(False, "Keep parameters in host memory between stages (GPU only).")
    cpu_offload: bool = knob(
        False,
        "Keep parameters, gradients and optimiser state in host memory within stages too: each layer's parameters come "
        "for its passes, and the optimiser's step runs on the CPU (GPU only).",
    )


@dataclass(kw_only=True)
class PolicyLossConfig(Section):
    """What a policy loss may read; the actor's section extends it."""

    policy_loss: str = knob("ppo", "Loss of the policy: a name of docs/algorithms.md, or `path/to/file.py:function`.")
    policy_loss_kwargs: dict[str, Any] = knob({}, "Keyword arguments passed to a policy loss from a file of yours.")
    clip_ratio_low: float = _non_negative(
        0.2, "The ratio may fall to 1 - this; gmpo bounds the log-ratio by it, dppo the divergence."
    )
    clip_ratio_high: float = _non_negative(
        0.2, "The ratio may rise to 1 + this (clip-higher when above clip_ratio_low); others as there."
    )
    clip_ratio_dual: float = knob(
        0.0,
        "Dual-clip bound for negative advantages (ppo); 0 turns it off.",
        check=lambda v: v == 0 or v > 1,
        expected="0, or a number above 1",
    )
    tau_pos: float = _positive(1.0, "Steepness of sapo's gate for positive advantages.")
    tau_neg: float = _positive(
        1.05, "Steepness of sapo's gate for the others; above tau_pos their gradient fades faster."
    )
    clip_cov_ratio: float = _fraction(0.0002, "Share of the mini-batch's tokens that clip_cov leaves out.")
    clip_cov_rank_low: float = _fraction(
        0.0002, "clip_cov spares this share of the tokens, those of highest covariance."
    )
    clip_cov_rank_high: float = _fraction(
        0.02, "clip_cov chooses among this share of the tokens of highest covariance, less those spared."
    )
    kl_cov_ratio: float = _fraction(
        0.0002, "Share of the mini-batch's tokens, those of highest covariance, that kl_cov penalises."
    )
    ppo_kl_coef: float = _non_negative(1.0, "Weight of kl_cov's penalty |log ratio|.")
    dppo_max_ratio: float = _positive(20.0, "dppo_tv and dppo_kl weight a token by its ratio, up to this.")
    dro_beta: float = _positive(1.0, "Weight of dro's squared log-ratio.")
    loss_aggregation: str = knob(
        "token-mean",
        "How token losses become one number; all counts are global.",
        choices=("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"),
    )
    entropy_coef: float = _non_negative(0.0, "Weight of the entropy bonus.")
    kl_loss_coef: float = _non_negative(
        0.0, "Weight of the KL(actor, ref) term in the loss; above 0 a reference exists."
    )
    kl_loss_type: str = knob(
        "k3",
        "Estimator of that KL; with a + its value has the gradient of k2, which is the KL's own.",
        choices=("k1", "k2", "k3", "abs", "k1+", "k2+", "k3+", "abs+"),
    )


@dataclass(kw_only=True)
class ActorConfig(PolicyLossConfig):
    mini_batch_size: int = _positive(32, "Prompts per optimiser update.", unit="prompts")
    epochs: int = _positive(1, "Passes over each batch.")
    use_rollout_log_probs: bool = knob(
        False, "Take the engine's log-probs for the old policy's, and skip the stage that computes them."
    )
    skip_zero_advantages: bool = knob(
        False,
        "Leave responses without advantage out of the passes. The loss does not change; "
        "metrics per token count them as zeros.",
    )
    max_tokens_per_micro_batch: str = _tokens_per_micro_batch("forward/backward")
    sequence_parallel_size: int = _sequence_parallel_size()
    use_torch_compile: bool = knob(
        False, "Compile the log-prob and entropy function in a warm-up before the first step."
    )
    compile_layers: bool = knob(
        False, "Compile the actor's decoder layers, but for their attention, in a warm-up before the first step."
    )
    log_prob_chunk_mib: int = _positive(
        512,
        "Logits that exist at once in the log-prob function; those beyond it are computed again in backward.",
        unit="MiB",
    )
    optim: OptimConfig = knob(OptimConfig, "Optimiser of the actor.")
    fsdp: FsdpConfig = knob(FsdpConfig, "Sharding of the actor.")


@dataclass(kw_only=True)
class CriticConfig(Section):
    path: str = knob("", "Model the critic starts from; empty means model.path with a fresh value head.")
    mini_batch_size: int = _positive(32, "Prompts per optimiser update.", unit="prompts")
    epochs: int = _positive(1, "Passes over each batch.")
    max_tokens_per_micro_batch: str = _tokens_per_micro_batch("forward/backward")
    sequence_parallel_size: int = _sequence_parallel_size()
    value_clip: float = _non_negative(
        0.2, "Values may move this far from the old ones per batch; 0 turns clipping off."
    )
    warmup_steps: int = _non_negative(0, "Steps at the start in which only the critic learns.", unit="steps")
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(lr=1e-5), metadata={"doc": "Optimiser of the critic."}
    )
    fsdp: FsdpConfig = knob(FsdpConfig, "Sharding of the critic.")


@dataclass(kw_only=True)
class ValSamplingConfig(Section):
    n: int = _positive(1, "Responses per validation prompt.")
    temperature: float = _non_negative(1.0, "Sampling temperature of validation; 0 is greedy.")
    top_p: float = knob(
        1.0, "Nucleus of validation sampling.", check=lambda v: 0 < v <= 1, expected="a number above 0, at most 1"
    )
    top_k: int = knob(
        -1,
        "Candidates kept in validation; -1 keeps all.",
        check=lambda v: v == -1 or v > 0,
        expected="-1 or a positive number",
    )


@dataclass(kw_only=True)
class RolloutConfig(Section):
    backend: str = knob("vllm", "Engine that generates; hf is slow and for debugging.", choices=("vllm", "hf"))
    n: int = _positive(8, "Responses per prompt.")
    temperature: float = _positive(
        1.0, "Sampling temperature in training; log-probs are taken at the same temperature."
    )
    top_p: float = knob(
        1.0, "Nucleus of training sampling.", check=lambda v: 0 < v <= 1, expected="a number above 0, at most 1"
    )
    top_k: int = knob(
        -1,
        "Candidates kept in training; -1 keeps all.",
        check=lambda v: v == -1 or v > 0,
        expected="-1 or a positive number",
    )
    ignore_eos: bool = knob(False, "Generate to max_response_length whatever the model says (benchmarks).")
    tensor_parallel_size: int = _positive(1, "Ranks that share one engine.", unit="ranks")
    dtype: str = knob(
        "auto",
        "Dtype of the engine's weights; auto is float32 on CPU and bfloat16 on GPU.",
        choices=("auto", "float32", "bfloat16"),
    )
    gpu_memory_utilization: float = _fraction(0.5, "Share of each GPU the engine may take (GPU only).")
    kv_cache_memory_gib: float = _positive(0.25, "Size of the engine's key-value cache on CPU.", unit="GiB")
    max_num_seqs: int = _positive(256, "Sequences the engine decodes at once.", unit="sequences")
    max_num_batched_tokens: int = _positive(
        8192, "Tokens of one engine step; on CPU at least the longest prompt plus response.", unit="tokens"
    )
    enforce_eager: bool = knob(False, "Skip CUDA graphs (CPU is always eager).")
    lora: str = knob(
        "merged",
        "How model.lora reaches the engine: merged into its weights, or as an adapter beside those of the model's "
        "folder (vllm), which keeps in bfloat16 what merging rounds away, and syncs little.",
        choices=("merged", "adapter"),
    )
    sync_bucket_mib: float = _positive(
        64, "Weights are gathered and handed over in pieces of at most this size.", unit="MiB"
    )
    sync_checksum: bool = knob(
        False,
        "Compare what all ranks hand to their engines, bit by bit, and report sync/checksum; on a GPU every weight is "
        "copied to the host for it.",
    )
    block_kib: float = _non_negative(
        256,
        "Finished groups travel in blocks of at least this size, or after half a second, and of a sixteenth of a "
        "rank's groups.",
        unit="KiB",
    )
    dealing: str = knob(
        "auto",
        "queue lets engines take prompts when they have room, those of the longest responses first; ahead deals them "
        "in advance, so that a run repeats bit for bit. auto is ahead on CPU and with trainer.deterministic.",
        choices=("auto", "queue", "ahead"),
    )
    engine_kwargs: dict[str, Any] = knob({}, "Passed to the engine's constructor as they are.")
    val: ValSamplingConfig = knob(ValSamplingConfig, "Sampling of validation.")


@dataclass(kw_only=True)
class RefConfig(Section):
    path: str = knob("", "Reference model; empty means model.path.")
    max_tokens_per_micro_batch: str = _tokens_per_micro_batch("forward")
    sequence_parallel_size: int = _sequence_parallel_size()
    fsdp: FsdpConfig = knob(FsdpConfig, "Sharding of the reference.")


@dataclass(kw_only=True)
class RewardModelConfig(Section):
    """A sequence classifier whose one output is a response's score."""

    path: str = knob("", "Folder or hub name of a sequence-classification model with one label; empty for none.")
    weight: float = knob(1.0, "Weight of its score in the sum.", check=lambda v: v == v, expected="a number")
    placement: str = knob(
        "colocated",
        "colocated shares the hybrid workers and scores when the rollout is over; own has workers of its "
        "own that score while it runs.",
        choices=("colocated", "own"),
    )
    num_workers: int = _positive(1, "Workers with placement=own; the model is sharded over them.", unit="workers")
    max_length: int = _non_negative(
        0,
        "Longest prompt and response in the model's own tokens; longer ones lose their beginning. 0 is as "
        "long as the model reads.",
        unit="tokens",
    )
    max_tokens_per_micro_batch: str = _tokens_per_micro_batch("forward")
    fsdp: FsdpConfig = knob(FsdpConfig, "Sharding of the reward model.")


@dataclass(kw_only=True)
class JudgeConfig(Section):
    """A language model that is asked for a verdict, in engines of its own."""

    path: str = knob(
        "",
        "Folder or hub name of the judge; empty for none. One that is served elsewhere is reward.function=llm_judge.",
    )
    weight: float = knob(1.0, "Weight of its score in the sum.", check=lambda v: v == v, expected="a number")
    backend: str = knob("vllm", "Engine of the judge.", choices=("vllm", "hf"))
    num_workers: int = _positive(1, "Workers of the judge, a multiple of tensor_parallel_size.", unit="workers")
    tensor_parallel_size: int = _positive(1, "Workers that share one engine.", unit="ranks")
    template: str = knob(
        "", "Jinja template (text or path of a .jinja file) of the question; empty takes the built-in one."
    )
    score_pattern: str = knob(
        "", "Regular expression whose last match's group 1 is the score; empty takes that of the built-in template."
    )
    max_score: float = _positive(
        10.0, "The best verdict; scores are divided by it, and a verdict outside 0 to this is a failure."
    )
    temperature: float = _non_negative(0.0, "Sampling temperature of the verdict; 0 is greedy.")
    max_tokens: int = _positive(512, "Longest verdict.", unit="tokens")
    max_model_len: int = _positive(8192, "Longest question plus verdict.", unit="tokens")
    gpu_memory_utilization: float = _fraction(0.8, "Share of each GPU its engine may take (GPU only).")
    kv_cache_memory_gib: float = _positive(0.25, "Size of its engine's key-value cache on CPU.", unit="GiB")


def _is_on_failure(text: str) -> bool:
    kind, _, number = text.partition(":")
    if kind != "score":
        return text in ("mask", "abort")
    try:
        return abs(float(number)) < float("inf")
    except ValueError:
        return False


@dataclass(kw_only=True)
class RewardConfig(Section):
    function: str = knob(
        "", "`path/to/file.py:name` of a scorer, or a built-in's name; empty chooses per row by data_source."
    )
    function_kwargs: dict[str, Any] = knob({}, "Keyword arguments passed to the function with each sample.")
    functions: dict[str, Any] = knob(
        {},
        "Several scorers instead of one: {name: {function: ..., weight: 1.0, kwargs: {...}}}; the score "
        "is their weighted sum.",
    )
    num_workers: int = _positive(1, "Scorer processes, over all nodes.", unit="processes")
    timeout_s: float = _positive(
        10.0, "Longest time one sample may take; past it the scorer is killed and the sample masked.", unit="seconds"
    )
    max_memory_gib: float = _positive(
        4.0, "Address space a scorer process may take beyond what it has once its function is loaded.", unit="GiB"
    )
    max_concurrency: int = _positive(
        32, "Calls of an async function under way at once in each scorer process.", unit="calls"
    )
    on_failure: str = knob(
        "mask",
        "What a sample without a score is worth: mask leaves it out, score:<x> gives it x, abort ends the run.",
        check=_is_on_failure,
        expected="mask, abort, or score:<number>, e.g. score:-1",
    )
    max_failure_frac: float = _fraction(
        0.5, "Share of a step's (or a validation batch's) samples that may fail before the run ends."
    )
    try_first: bool = knob(
        True, "Before models load, try the function on one sample of each data source and read every ground truth."
    )
    model: RewardModelConfig = knob(RewardModelConfig, "A reward model; its score is added to the function's.")
    judge: JudgeConfig = knob(JudgeConfig, "A judge in engines of its own; its score is added to the function's.")


@dataclass(kw_only=True)
class CorrectionConfig(Section):
    """What is done about the engine and the trainer giving different probabilities to the same token."""

    level: str = knob(
        "token",
        "What has an importance weight, trainer over engine: each token, or each sequence as the product over its "
        "tokens; off weighs everything 1.",
        choices=("token", "sequence", "off"),
    )
    mode: str = knob(
        "truncate",
        "Weights are capped at upper (TIS), or tokens with a weight outside lower and upper are masked (IcePop).",
        choices=("truncate", "mask"),
    )
    upper: float = knob(
        2.0,
        "Largest weight; the IcePop paper masks above 5.",
        check=lambda v: v >= 1,
        expected="a number of at least 1",
    )
    lower: float = _fraction(0.5, "Smallest weight with mode=mask; 0 has no bound.")
    rejection: str = knob(
        "off",
        "Drop tokens by their ratio, or responses by the product or the geometric mean of their tokens' ratios.",
        choices=("off", "token", "sequence", "geometric"),
    )
    rejection_upper: float = knob(
        2.0,
        "Ratio above which rejection drops; for geometric close to 1, e.g. 1.001.",
        check=lambda v: v >= 1,
        expected="a number of at least 1",
    )
    rejection_lower: float = _fraction(
        0.5, "Ratio below which rejection drops; for geometric close to 1, e.g. 0.999; 0 has no bound."
    )
    veto_threshold: float = knob(
        0.0,
        "A response with one token whose ratio is below this, e.g. 1e-4, is dropped whole; 0 turns it off.",
        check=lambda v: 0 <= v < 1,
        expected="a number from 0 to below 1",
    )
    batch_normalize: bool = knob(False, "Divide the weights by their mean over the batch.")
    min_gap: float = _non_negative(
        1e-4,
        "Mean absolute gap of log-probs below which the correction is left off; float32 engines are at "
        "about 1e-6, bfloat16 at 1e-2.",
        unit="nats",
    )


@dataclass(kw_only=True)
class AlgorithmConfig(Section):
    adv_estimator: str = knob(
        "grpo", "How advantages are computed: a name of docs/algorithms.md, or `path/to/file.py:function`."
    )
    estimator_kwargs: dict[str, Any] = knob({}, "Keyword arguments passed to an estimator from a file of yours.")
    gamma: float = _fraction(1.0, "Discount per token (gae, reinforce, reinforce_plus_plus).")
    lam: float = _fraction(1.0, "Lambda of generalised advantage estimation (gae).")
    divide_by_std: bool = knob(
        True, "grpo, grpo_passk and gdpo divide by the group's standard deviation; false makes grpo Dr. GRPO."
    )
    reward_components: dict[str, float] = knob(
        {},
        "Components that the reward function reports beside its score, with weights (gdpo).",
        check=lambda v: all(abs(weight) < float("inf") for weight in v.values()),
        expected="finite weights",
    )
    kl_coef: float = _non_negative(
        0.0, "Weight of the KL(actor, ref) penalty in the reward; above 0 a reference exists."
    )
    kl_type: str = knob("k1", "Estimator of that KL.", choices=("k1", "k2", "k3", "abs"))
    kl_target: float = _non_negative(
        0.0, "KL per response that an adaptive kl_coef steers to; 0 keeps kl_coef fixed.", unit="nats"
    )
    kl_horizon: int = _positive(10000, "Responses over which an adaptive kl_coef reacts.", unit="responses")
    reward_clip: float = _non_negative(0.0, "Scores are held within +- this before anything else; 0 leaves them.")
    reward_scale: float = _positive(1.0, "Scores are multiplied by this.")
    overlong_buffer_len: int = _non_negative(
        0, "Last tokens before max_response_length over which a penalty rises (DAPO); 0 for none.", unit="tokens"
    )
    overlong_penalty_factor: float = _non_negative(1.0, "That penalty at max_response_length.")
    mask_overlong: bool = knob(
        False, "Learn nothing from responses that ran into max_response_length; siblings still compare with them."
    )
    filter_groups: bool = knob(
        False, "Drop groups whose scores are all equal and draw others in their place (DAPO's dynamic sampling)."
    )
    max_num_gen_batches: int = _positive(
        10, "Batches of prompts that filter_groups may draw in a step before it gives up.", unit="batches"
    )
    pf_ppo: str = knob(
        "off",
        "Resample responses by their reward before the update (PF-PPO).",
        choices=("off", "pow", "max_min", "max_random"),
    )
    pf_ppo_weight_pow: float = _positive(2.0, "Power of the reward's size with pf_ppo=pow.")
    rollout_correction: CorrectionConfig = knob(
        CorrectionConfig, "What is done about the gap between engine and trainer."
    )


@dataclass(kw_only=True)
class TrainerConfig(Section):
    experiment_name: str = knob("default", "Name of the run; its folder is output_dir/experiment_name.")
    output_dir: str = knob("outputs", "Where run folders are made.")
    remote_dir: str = knob(
        "",
        "Folder of a remote store (s3://, gs://, hdfs://, ...) that the run's folder is copied to, at each checkpoint "
        "and at the end, and brought from where it is further there; empty for none.",
        check=lambda v: not v or "://" in v,
        expected="a URL such as s3://bucket/runs, or file:///mnt/runs",
    )
    remote_timeout_s: float = _positive(
        600.0,
        "Longest time of one copy to or from remote_dir; what is not done then is told and tried again with the next.",
        unit="seconds",
    )
    prepare_command: str = knob(
        "", "Command that makes the files and models a recipe names; told where one of them is missing."
    )
    seed: int = _non_negative(1, "Seed of data order, sampling and initialisation.")
    deterministic: bool = knob(
        False,
        "Have the libraries choose what repeats bit for bit, at a price, where they can; on CPU a run repeats anyway.",
    )
    total_epochs: int = _positive(1, "Passes over the training rows; total_training_steps overrides it.")
    total_training_steps: int = _non_negative(0, "Steps to run; 0 derives them from total_epochs.", unit="steps")
    val_before_train: bool = knob(True, "Validate before the first step.")
    val_only: bool = knob(False, "Validate and stop.")
    test_freq: int = _every_so_many(
        "Validate every so many steps and at the end; 0 or -1 only at the ends, and with val_before_train=false never."
    )
    save_freq: int = _every_so_many("Checkpoint every so many steps; 0 or -1 only at the end.")
    async_save: bool = knob(
        True,
        "Have the step wait for a copy of what a checkpoint holds, in host memory, which is written while the run goes "
        "on; a checkpoint waits for the one before it.",
    )
    max_checkpoints: int = _non_negative(2, "Newest checkpoints kept; 0 keeps all, and the best one is kept besides.")
    resume: str = knob(
        "auto",
        "auto continues from the run folder's newest checkpoint, never refuses a used folder, a path names a "
        "checkpoint.",
    )
    best_metric: str = knob("", "Validation metric that decides the best checkpoint; empty means mean@n over all rows.")
    num_samples_to_save: int = knob(
        32,
        "Responses written to samples/ each validation and each step; -1 writes all.",
        unit="rows",
        check=lambda v: v >= -1,
        expected="-1 or a number of at least 0",
    )
    num_capsules: int = _non_negative(
        2,
        "Newest steps whose rows and numbers are kept in capsules/, for verl-like replay; the first and the newest "
        "steps that went wrong stay besides, eight at most.",
        unit="steps",
    )
    max_records_gib: float = _non_negative(
        1.5,
        "Room in the run's folder for what grows with every step: samples, ledger, trace, kept capsules and reward "
        "failures; older records are thinned out; 0 keeps all.",
        unit="GiB",
    )
    profile_steps: list[int] = knob(
        [],
        "Steps whose stages every worker traces with PyTorch's profiler, into profile/step_N; on a GPU with snapshots "
        "of its memory. Ray's record of their calls lies beside.",
        check=lambda v: all(step > 0 for step in v),
        expected="numbers of at least 1",
    )
    loggers: list[str] = knob(
        ["console", "jsonl", "tensorboard"],
        "Where metrics go: console, jsonl, tensorboard, wandb, mlflow, swanlab, trackio.",
    )
    project_name: str = knob("verl_like", "Project name for wandb, mlflow, swanlab and trackio.")
    balance_by: str = knob(
        "tokens",
        "What ranks and micro-batches get equal shares of: tokens, or attention (the sum of squared lengths).",
        choices=("tokens", "attention"),
    )
    stage_timeout_s: float = _positive(1800.0, "Longest time one stage of a step may take.", unit="seconds")
    stall_after_s: float = _positive(
        60.0,
        "Shortest silence of a process in a stage that counts as standing still; five times the longest silence that "
        "the run has seen in the stage if that is longer, and ten times this in a stage that is new.",
        unit="seconds",
    )
    on_stall: str = knob(
        "abort",
        "What follows when a process stands still: a report (in the log, and stacks in the run folder's stalls/), or "
        "also an end, or a restart (which trainer.max_restarts bounds).",
        choices=("report", "abort", "restart"),
    )
    max_restarts: int = _non_negative(
        0,
        "Times that train and sft build their processes anew, and go on from the last checkpoint, after one of these "
        "was lost.",
        unit="restarts",
    )
    grace_s: float = _positive(
        60.0,
        "Longest time from Ctrl-C or SIGTERM to the end; at most 15 s of it, or half, are for ending processes. Give "
        "what the batch system leaves between its SIGTERM and its SIGKILL.",
        unit="seconds",
    )


@dataclass(kw_only=True)
class ClusterConfig(Section):
    address: str = knob("", "Ray cluster to join; empty starts a local one.")
    device: str = knob("auto", "Accelerator of the hybrid workers.", choices=("auto", "cpu", "cuda"))
    num_nodes: int = _positive(1, "Nodes the workers are spread over.", unit="nodes")
    workers_per_node: int = _non_negative(
        0,
        "Hybrid workers per node; 0 takes every GPU, and without GPUs two, or up to 8 that divide the batch and fit.",
        unit="workers",
    )
    threads_per_worker: int = _non_negative(
        0, "Threads of a hybrid worker on CPU; 0 shares out the cores, one in a Ray that is joined.", unit="threads"
    )
    env: dict[str, str] = knob({}, "Environment variables of the workers.")
    object_store_memory_gib: float = _positive(1.0, "Ray's object store of a local cluster.", unit="GiB")
    start_timeout_s: float = _positive(
        1800.0, "Longest time to place workers and load models, downloads and captured graphs included.", unit="seconds"
    )


@dataclass(kw_only=True)
class Config(Section):
    """The whole configuration; its sections are the words users type on the command line."""

    data: DataConfig = knob(DataConfig, "Rows and prompts.")
    model: ModelConfig = knob(ModelConfig, "The actor's model.")
    actor: ActorConfig = knob(ActorConfig, "The policy that learns.")
    rollout: RolloutConfig = knob(RolloutConfig, "Generation.")
    ref: RefConfig = knob(RefConfig, "The frozen reference.")
    critic: CriticConfig = knob(CriticConfig, "The value model.")
    reward: RewardConfig = knob(RewardConfig, "Scoring.")
    algorithm: AlgorithmConfig = knob(AlgorithmConfig, "Advantages and KL.")
    trainer: TrainerConfig = knob(TrainerConfig, "The loop.")
    cluster: ClusterConfig = knob(ClusterConfig, "Machines and processes.")

    @property
    def validates(self) -> bool:
        """Whether training is interrupted by validations: there are rows, and not both ways to ask for it are off."""
        return bool(self.data.val_files) and (self.trainer.val_before_train or self.trainer.test_freq > 0)

    @property
    def ref_is_actor(self) -> bool:
        """Whether a reference is the actor without its adapters: the model that both began with."""
        return self.model.lora.rank > 0 and not self.ref.path

    @property
    def syncs_adapter(self) -> bool:
        """Whether the engine is given adapters alone."""
        return self.model.lora.rank > 0 and self.rollout.lora == "adapter"

    def deals_by_queue(self, device: str) -> bool:
        """Whether engines on "cpu" or "cuda" take prompts as they get free."""
        if self.rollout.dealing == "auto":
            return device == "cuda" and not self.trainer.deterministic
        return self.rollout.dealing == "queue"

    @property
    def val_metric(self) -> str:
        """The validation metric that a run is judged by."""
        return self.trainer.best_metric or f"val/mean@{self.rollout.val.n}"
