"""Converters for the arguments of TRL's GRPO alone: its loss, its sampling and its engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_like_migrate.converters import Converted, Converter

PeerValues = Mapping[str, Any]
# loss_type -> policy loss and aggregation.
LOSSES = {
    "grpo": ("ppo", "seq-mean-token-mean"),
    "dapo": ("ppo", "token-mean"),
    "bnpo": ("ppo", "token-mean"),
    "dr_grpo": ("ppo", "seq-mean-token-sum-norm"),
    "luspo": ("ppo", "seq-mean-token-sum"),  # of the ratios of importance_sampling_level
    "cispo": ("cispo", "token-mean"),
    "sapo": ("sapo", "seq-mean-token-mean"),
    "vespo": ("vespo", "token-mean"),
}
DIVIDES_BY_STD = {"group": True, True: True, "none": False, False: False}
CORRECTION = "algorithm.rollout_correction"


def clip(values: PeerValues) -> Converted:
    """Convert distances from 1; of ``cispo``, ``epsilon_high`` is the largest weight itself, and there is no least."""
    low, high = values["epsilon"], values["epsilon_high"]
    if values["loss_type"] == "cispo":
        if high is None or high < 1:
            return Converted()  # refused with the loss
        return Converted({"actor.clip_ratio_low": 1.0, "actor.clip_ratio_high": high - 1}, "weights up to epsilon_high")
    return Converted({"actor.clip_ratio_low": low, "actor.clip_ratio_high": low if high is None else high})


def kl_weight(values: PeerValues) -> Converted:
    return Converted({"actor.weigh_kl_by_ratio": bool(values["use_bias_correction_kl"])} if values["beta"] else {})


def policy_loss(values: PeerValues) -> Converted:
    kind, level = values["loss_type"], values["importance_sampling_level"]
    if kind not in LOSSES:
        raise ValueError(f"loss_type is {kind}, expected one of {', '.join(LOSSES)}")
    if level not in ("token", "sequence"):
        raise ValueError(f"importance_sampling_level is {level}; expected token or sequence")
    loss, aggregation = LOSSES[kind]
    if loss == "cispo" and (values["epsilon_high"] is None or values["epsilon_high"] < 1):
        found = values["epsilon_high"]
        raise ValueError(f"epsilon_high is {found}, the largest weight of cispo; expected at least 1, such as 5")
    if level == "sequence":
        if loss != "ppo":
            raise ValueError(f"loss_type={kind} has a ratio for each token. Leave importance_sampling_level out")
        loss = "gspo"
    return Converted({"actor.policy_loss": loss, "actor.loss_aggregation": aggregation})


def scale_rewards(values: PeerValues) -> Converted:
    if values["scale_rewards"] not in DIVIDES_BY_STD:
        raise ValueError(f"it is {values['scale_rewards']}; expected group or none: there is no deviation of a batch")
    return Converted({"algorithm.divide_by_std": DIVIDES_BY_STD[values["scale_rewards"]]})


def engine(values: PeerValues) -> Converted:
    if values.get("use_vllm", True):
        return Converted(note="vLLM runs within the workers, and generates unless use_vllm=False")
    return Converted({"rollout.backend": "hf"}, "plain transformers generate, which is slow")


def val_sampling(values: PeerValues) -> Converted:
    n, top_k = values["num_generations_eval"], values["top_k"]
    sampling = {name: values[name] for name in ("temperature", "top_p")}
    found = {"n": n or values["num_generations"], **sampling, "top_k": top_k or -1}
    return Converted({f"rollout.val.{name}": value for name, value in found.items()})


def reward_weights(values: PeerValues) -> Converted:
    return Converted(note="one weight for each of reward_funcs") if values["reward_weights"] else Converted()


def correction(values: PeerValues) -> Converted:
    """Convert importance weights of the trainer over the engine, by token or response, capped or masked."""
    if not values.get("vllm_importance_sampling_correction", True):
        return Converted({f"{CORRECTION}.level": "off"})
    level, _, kind = str(values.get("vllm_importance_sampling_mode", "sequence_mask")).partition("_")
    if level not in ("token", "sequence") or kind not in ("truncate", "mask"):
        raise ValueError("vllm_importance_sampling_mode is token or sequence, _, and truncate or mask")
    upper = values.get("vllm_importance_sampling_cap") or values.get("vllm_importance_sampling_clip_max", 3.0)
    lower = values.get("vllm_importance_sampling_clip_min")
    if kind == "truncate" and lower:
        raise ValueError("vllm_importance_sampling_clip_min is set, but only masked weights have a lower bound")
    found = {"level": level, "mode": kind, "upper": float(upper), "lower": float(lower or 0.0)}
    return Converted({f"{CORRECTION}.{name}": value for name, value in found.items()})


CONVERTERS: tuple[Converter, ...] = (
    clip,
    kl_weight,
    policy_loss,
    scale_rewards,
    engine,
    val_sampling,
    reward_weights,
    correction,
)
