"""The section ``actor``: the policy loss and its updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_like.config.schema.fields import (
    auto_or_number,
    fraction,
    micro_batch_tokens,
    non_negative,
    option,
    positive,
    ranks_per_sequence,
    switch,
)
from verl_like.config.schema.fsdp import FsdpConfig
from verl_like.config.schema.optim import OptimConfig
from verl_like.config.section import Section


@dataclass(kw_only=True)
class PolicyLossConfig(Section):
    """Options that a policy loss may read; the actor's section extends them."""

    policy_loss: str = option("ppo", "Policy loss: a name of docs/algorithms.md, or `path/to/file.py:function`.")
    policy_loss_kwargs: dict[str, Any] = option({}, "Keyword arguments passed to a custom policy loss.")
    clip_ratio_low: float = non_negative(
        0.2, "Clip the ratio at 1 - this; gmpo bounds the log-ratio by it, dppo the divergence."
    )
    clip_ratio_high: float = non_negative(
        0.2, "Clip the ratio at 1 + this (clip-higher if above clip_ratio_low); gmpo, dppo: as there."
    )
    clip_ratio_dual: float = option(
        0.0,
        "Dual-clip bound for negative advantages (ppo); 0 turns it off.",
        check=lambda v: v == 0 or v > 1,
        expected="0, or a number above 1",
    )
    tau_pos: float = positive(1.0, "Steepness of sapo's gate for positive advantages.")
    tau_neg: float = positive(
        1.05, "Steepness of sapo's gate for the others; above tau_pos their gradient fades faster."
    )
    vespo_k_pos: float = positive(
        2.0, "vespo: power of the response's ratio for advantages of at least 0; higher weighs low ratios less."
    )
    vespo_lambda_pos: float = positive(
        3.0, "vespo: decay in the response's ratio for advantages of at least 0; higher weighs high ratios less."
    )
    vespo_k_neg: float = positive(3.0, "vespo: as vespo_k_pos, for negative advantages.")
    vespo_lambda_neg: float = positive(2.0, "vespo: as vespo_lambda_pos, for negative advantages.")
    a_star_beta: float = positive(
        0.001, "a_star_po: weight of the response's log-ratio to the reference, the beta_2 of the paper."
    )
    clip_cov_ratio: float = fraction(0.0002, "Share of the mini-batch's tokens that clip_cov masks.")
    clip_cov_rank_low: float = fraction(0.0002, "clip_cov never masks this share of tokens, the highest covariances.")
    clip_cov_rank_high: float = fraction(0.02, "clip_cov masks tokens only within this share of highest covariances.")
    kl_cov_ratio: float = fraction(
        0.0002, "Share of the mini-batch's tokens that kl_cov penalises: the highest covariances."
    )
    ppo_kl_coef: float = non_negative(1.0, "Weight of kl_cov's penalty |log ratio|.")
    dppo_max_ratio: float = positive(20.0, "Largest ratio that weights a token in dppo_tv and dppo_kl.")
    dro_beta: float = positive(1.0, "Weight of dro's squared log-ratio.")
    loss_aggregation: str = option(
        "token-mean",
        "Reduction of token losses; all counts are global.",
        choices=(
            *("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"),
            "prompt-mean",
        ),
    )
    rollout_kl_coef: float = non_negative(
        0.0, "Weight of the squared difference between the policy's and the engine's log-probs in the loss (Kimi K2.5)."
    )
    off_policy_mask_threshold: float = non_negative(
        0.0,
        "Leave out the tokens of negative advantage of a response whose log-probs have fallen by more than this on "
        "average since the engine sampled it (DeepSeek-V3.2); 0 turns it off.",
        unit="nats",
    )
    entropy_coef: float = non_negative(0.0, "Weight of the entropy bonus.")
    kl_loss_coef: float = non_negative(0.0, "Weight of the KL(actor, ref) term in the loss; above 0 loads a reference.")
    kl_loss_type: str = option(
        "k3",
        "Estimator of that KL; a + keeps its value but takes the gradient of k2, the KL's own.",
        choices=("k1", "k2", "k3", "abs", "k1+", "k2+", "k3+", "abs+"),
    )
    weigh_kl_by_ratio: bool = option(
        False,
        "Multiply that KL by the ratio of the policy to the old one, which gives k1 and k3 the KL's own gradient "
        "(DeepSeek-V3.2's unbiased KL).",
    )


@dataclass(kw_only=True)
class ActorConfig(PolicyLossConfig):
    mini_batch_size: int = positive(32, "Prompts per optimiser update.", unit="prompts")
    epochs: int = positive(1, "Passes over each batch.")
    use_rollout_log_probs: bool = option(
        False, "Use the engine's log-probs as the old policy's and skip the stage that computes them."
    )
    skip_zero_advantages: bool = option(
        False, "Skip responses with zero advantages. The loss does not change; metrics per token count them as zeros."
    )
    max_tokens_per_micro_batch: str = micro_batch_tokens("forward/backward")
    sequence_parallel_size: int = ranks_per_sequence()
    use_torch_compile: str = switch(
        "Compile the log-prob and entropy function in a warm-up before the first step; auto does on GPU."
    )
    compile_layers: str = switch(
        "Compile the actor's decoder layers, except attention, in a warm-up before the first step; auto does on GPU "
        "for packed rows, unless Liger's kernels (model.kernels) compute these layers."
    )
    log_prob_chunk_mib: str = auto_or_number(
        "Logits held at once in the log-prob function; the backward pass recomputes the rest. auto is 512, and 2,048 "
        "on GPUs with 64 GiB or more.",
        unit="MiB",
    )
    router_bias_rate: float = non_negative(
        0.0,
        "Of mixtures whose routers choose with a bias (DeepSeek-V3), the step by which each update moves an expert's "
        "bias towards the mean load (2408.15664).",
    )
    router_aux_loss_coef: float = non_negative(
        0.0,
        "Of mixtures of experts, the coefficient of a loss that evens the load of experts within each response "
        "(2412.19437); 1e-4 to 1e-2 are usual.",
    )
    freeze_router: bool = option(False, "Keep the routers of a mixture of experts as they are.")
    optim: OptimConfig = option(OptimConfig, "Optimiser of the actor.")
    fsdp: FsdpConfig = option(FsdpConfig, "Sharding of the actor.")

    @property
    def logits_mib(self) -> int:
        """``log_prob_chunk_mib`` as a number, which without a plan's choice is 512."""
        return 512 if self.log_prob_chunk_mib == "auto" else int(self.log_prob_chunk_mib)
