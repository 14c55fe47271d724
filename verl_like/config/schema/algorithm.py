"""The sections ``algorithm`` and ``algorithm.rollout_correction``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_like.config.schema.fields import fraction, non_negative, option, positive
from verl_like.config.section import Section


@dataclass(kw_only=True)
class CorrectionConfig(Section):
    """Correction for tokens to which engine and trainer assign different probabilities."""

    level: str = option(
        "token",
        "Unit of the importance weight, trainer over engine: token, or sequence (product over its tokens); off sets "
        "it to 1.",
        choices=("token", "sequence", "off"),
    )
    mode: str = option(
        "truncate",
        "Cap weights at upper (TIS), or mask tokens with a weight outside lower and upper (IcePop).",
        choices=("truncate", "mask"),
    )
    upper: float = option(
        2.0,
        "Largest weight; the IcePop paper masks above 5.",
        check=lambda v: v >= 1,
        expected="a number of at least 1",
    )
    lower: float = fraction(0.5, "Smallest weight with mode=mask; 0 is no bound.")
    rejection: str = option(
        "off",
        "Drop tokens by ratio, or responses by the product or geometric mean of their tokens' ratios.",
        choices=("off", "token", "sequence", "geometric"),
    )
    rejection_upper: float = option(
        2.0,
        "Ratio above which rejection drops; for geometric close to 1, e.g. 1.001.",
        check=lambda v: v >= 1,
        expected="a number of at least 1",
    )
    rejection_lower: float = fraction(
        0.5, "Ratio below which rejection drops; for geometric close to 1, e.g. 0.999; 0 is no bound."
    )
    veto_threshold: float = option(
        0.0,
        "Drop a response if one token's ratio is below this, e.g. 1e-4; 0 turns it off.",
        check=lambda v: 0 <= v < 1,
        expected="a number from 0 to below 1",
    )
    batch_normalize: bool = option(False, "Divide the weights by their mean over the batch.")
    min_gap: float = non_negative(
        1e-4,
        "Mean absolute log-prob gap below which nothing is corrected; float32 engines are at about 1e-6, bfloat16 at "
        "1e-2.",
        unit="nats",
    )

    @property
    def is_on(self) -> bool:
        """Whether any correction is enabled."""
        return self.level != "off" or self.rejection != "off" or self.veto_threshold > 0


@dataclass(kw_only=True)
class AlgorithmConfig(Section):
    adv_estimator: str = option(
        "grpo", "Advantage estimator: a name of docs/algorithms.md, or `path/to/file.py:function`."
    )
    estimator_kwargs: dict[str, Any] = option({}, "Keyword arguments passed to a custom estimator.")
    gamma: float = fraction(1.0, "Discount per token (gae, reinforce, reinforce_plus_plus).")
    lam: float = fraction(1.0, "Lambda of generalised advantage estimation (gae).")
    divide_by_std: bool = option(
        True,
        "grpo, grpo_passk, gdpo, gigpo and turn_credit divide by the group's standard deviation; false makes grpo Dr. "
        "GRPO.",
    )
    turn_gamma: float = fraction(0.95, "Discount per turn of an episode (gigpo, turn_credit).")
    turn_weight: float = non_negative(
        1.0, "Weight of a turn's own advantage in addition to its episode's (gigpo, turn_credit)."
    )
    rae_decay: float = option(
        0.95,
        "Decay d of a role's baseline (rae), in each step: d * baseline + (1 - d) * mean reward of the role.",
        check=lambda v: 0 <= v < 1,
        expected="a number from 0 to below 1",
    )
    rae_role_key: str = option("data_source", "Column that names the role of a row (rae).")
    reward_components: dict[str, float] = option(
        {},
        "Components that the reward function reports with its score, with weights (gdpo, a_star_po).",
        check=lambda v: all(abs(weight) < float("inf") for weight in v.values()),
        expected="finite weights",
    )
    kl_coef: float = non_negative(0.0, "Weight of the KL(actor, ref) penalty in the reward; above 0 loads a reference.")
    kl_type: str = option("k1", "Estimator of that KL.", choices=("k1", "k2", "k3", "abs"))
    kl_target: float = non_negative(
        0.0, "Target KL per response of an adaptive kl_coef; 0 keeps kl_coef fixed.", unit="nats"
    )
    kl_horizon: int = positive(10000, "Responses over which an adaptive kl_coef reacts.", unit="responses")
    reward_clip: float = non_negative(0.0, "Clamp scores to +- this before anything else; 0 turns it off.")
    reward_scale: float = positive(1.0, "Multiply scores by this.")
    overlong_buffer_len: int = non_negative(
        0, "Last tokens before max_response_length over which a penalty rises (DAPO); 0 for none.", unit="tokens"
    )
    overlong_penalty_factor: float = non_negative(1.0, "Penalty at max_response_length.")
    mask_overlong: bool = option(
        False, "Mask responses cut at max_response_length in the loss; siblings still compare with them."
    )
    top_entropy_quantile: float = option(
        1.0,
        "Share of the mini-batch's tokens, those of highest entropy, that the policy loss learns from (0.2 in the "
        "paper); 1 keeps all.",
        check=lambda v: 0 < v <= 1,
        expected="a number above 0, at most 1",
    )
    distill_coef: float = non_negative(
        0.0, "Weight of distillation from a teacher (distill_teacher), in addition to any estimator."
    )
    distill_teacher: str = option(
        "ref",
        "Teacher. ref: ref.path or ref.teachers. base: the initial policy. self: the policy. ema: a moving average of "
        "the policy. All but ref also see the column data.privileged_context_key.",
        choices=("ref", "self", "ema", "base"),
    )
    distill_ema: float = option(
        0.05,
        "Weight w in the moving average (distill_teacher=ema), after each step: w * policy + (1 - w) * teacher.",
        check=lambda v: 0 < v <= 1,
        expected="a number above 0, at most 1",
    )
    distill_loss: str = option(
        "pg",
        "Form of it: pg adds the teacher's minus the policy's log-prob to each token's advantage, jsd adds the "
        "divergence over the whole vocabulary to the loss.",
        choices=("pg", "jsd"),
    )
    distill_beta: float = fraction(
        0.5, "Weight of the teacher in the mixture of jsd; 0 is the forward KL(teacher, policy), 1 the reverse."
    )
    filter_groups: bool = option(False, "Drop groups with equal scores and draw new prompts (DAPO's dynamic sampling).")
    max_num_gen_batches: int = positive(
        10, "Batches of prompts that filter_groups may draw in a step before it gives up.", unit="batches"
    )
    pf_ppo: str = option(
        "off",
        "Resample responses by their reward before the update (PF-PPO).",
        choices=("off", "pow", "max_min", "max_random"),
    )
    pf_ppo_weight_pow: float = positive(2.0, "Power of the reward's size with pf_ppo=pow.")
    rollout_correction: CorrectionConfig = option(
        CorrectionConfig, "Correction for the gap between engine and trainer."
    )

    @property
    def distillation(self) -> str:
        """``distill_loss`` if the run distils from a teacher, otherwise empty."""
        return self.distill_loss if self.distill_coef > 0 else ""

    @property
    def self_distillation(self) -> str:
        """``distill_teacher`` if the run distils from a version of the policy that sees more, otherwise empty."""
        return self.distill_teacher if self.distillation and self.distill_teacher != "ref" else ""
