"""Converters for OpenRLHF flags that have no direct equivalent, or whose numbers have another meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_like_migrate.converters import Converted, Converter, entries, two_betas

ESTIMATORS: dict[str, dict[str, Any]] = {
    "reinforce": {"algorithm.adv_estimator": "reinforce_plus_plus"},  # OpenRLHF whitens its advantages
    "group_norm": {"algorithm.adv_estimator": "grpo"},
    "dr_grpo": {"algorithm.adv_estimator": "grpo", "algorithm.divide_by_std": False},
}
WHITENED = ("gae", "reinforce", "reinforce_baseline")
OLD_LENGTH = 1024  # tokens of prompts and of responses in versions before data.max_len
MANY = 100_000_000  # OpenRLHF's default, which means all
CORRECTION = "algorithm.rollout_correction"
UNBOUNDED = 1e6  # of a ratio
FILES_NOTE = "files of jsonl or parquet, and what is no file as hf:NAME:SPLIT"
Theirs = Mapping[str, Any]


def clip(theirs: Theirs) -> Converted:
    low, high = theirs.get("actor.eps_clip_low_high") or [theirs["actor.eps_clip"]] * 2
    return Converted({"actor.clip_ratio_low": low, "actor.clip_ratio_high": high})


def betas(theirs: Theirs) -> Converted:
    return two_betas(theirs, {"actor.adam.betas": "actor.optim", "critic.adam.betas": "critic.optim"})


def _lengths(theirs: Theirs) -> tuple[int, int]:
    """Return the maximum tokens of a prompt and of a response; OpenRLHF limits their sum, older versions each."""
    longest, response = int(theirs["data.max_len"]), theirs.get("rollout.max_new_tokens")
    if "data.prompt_max_len" in theirs:
        return int(theirs["data.prompt_max_len"]), OLD_LENGTH if response is None else int(response)
    response = int(response) if response is not None else longest // 2
    return (longest - response if response < longest else OLD_LENGTH), response


def lengths(theirs: Theirs) -> Converted:
    prompt, response = _lengths(theirs)
    return Converted(
        {"data.max_response_length": response, "data.max_prompt_length": prompt},
        f"the prompt may have {prompt} tokens, the response {response}",
    )


def mini_batch(theirs: Theirs) -> Converted:
    """Convert from responses to prompts; a step has a whole number of mini-batches."""
    responses, n = int(theirs["train.batch_size"]), int(theirs["rollout.n_samples_per_prompt"])
    step = int(theirs["rollout.batch_size"])
    if isinstance(theirs["train.batch_size"], bool) or responses < 1:
        raise ValueError(f"train_batch_size is {theirs['train.batch_size']}, but is a number of responses")
    divisors = [prompts for prompts in range(1, step + 1) if step % prompts == 0]
    prompts = min(divisors, key=lambda each: abs(each * n - responses))
    note = f"{responses} responses are {prompts} prompts of {n}"
    if prompts * n != responses:
        note = f"{responses} responses are no whole number of prompts that divides {step}; {prompts * n} are closest"
    return Converted({"actor.mini_batch_size": prompts, "critic.mini_batch_size": prompts}, note)


def policy_loss(theirs: Theirs) -> Converted:
    kind, aggregation = theirs.get("actor.policy_loss_type", "ppo"), theirs.get("actor.loss_agg_mode")
    aggregation = "seq-mean-token-mean" if kind == "gspo" else aggregation
    return Converted(
        {"actor.policy_loss": kind} | ({"actor.loss_aggregation": aggregation} if aggregation else {}),
        "gspo is a mean over responses" if kind == "gspo" else "",
    )


def epochs(theirs: Theirs) -> Converted:
    return Converted(dict.fromkeys(("actor.epochs", "critic.epochs"), int(theirs["train.max_epochs"])))


def test_freq(theirs: Theirs) -> Converted:
    if not theirs.get("eval.dataset"):
        return Converted(note="there is nothing to validate on")
    return Converted({"trainer.test_freq": max(int(theirs["eval.steps"]), 0)})


def token_budgets(theirs: Theirs) -> Converted:
    if theirs["train.dynamic_batch_enable"]:
        forward = theirs.get("rollout.max_tokens_per_gpu") or theirs["train.max_tokens_per_gpu"]
        update = theirs["train.max_tokens_per_gpu"]
    else:
        longest = sum(_lengths(theirs))
        forward = int(theirs["rollout.micro_batch_size"]) * longest
        update = int(theirs["train.micro_batch_size"]) * longest
    return Converted(
        {
            "actor.max_tokens_per_micro_batch": str(update),
            "critic.max_tokens_per_micro_batch": str(update),
            "ref.max_tokens_per_micro_batch": str(forward),
        },
        "budgets of tokens; auto chooses by itself",
    )


def estimator(theirs: Theirs) -> Converted:
    name = theirs["algo.advantage.estimator"]
    found = dict(ESTIMATORS.get(name, {"algorithm.adv_estimator": name}))
    if theirs.get("algo.advantage.no_std_norm") and name in WHITENED:
        raise ValueError(f"{name} is centred there and not divided, which no estimator here does; dr_grpo is close")
    return Converted(found)


def kl(theirs: Theirs) -> Converted:
    coef, kind = theirs["algo.kl.init_coef"], theirs["algo.kl.estimator"]
    if theirs["algo.kl.use_loss"]:
        plus = "+" if theirs.get("algo.kl.unbiased_gradient") else ""
        return Converted({"actor.kl_loss_coef": coef, "actor.kl_loss_type": kind + plus, "algorithm.kl_coef": 0.0})
    compares = coef and theirs["algo.advantage.estimator"] not in ("gae", "reinforce")
    note = "off the scores, before they are compared; there off what the comparison has made" if compares else ""
    return Converted({"algorithm.kl_coef": coef, "algorithm.kl_type": kind, "actor.kl_loss_coef": 0.0}, note)


def correction(theirs: Theirs) -> Converted:
    """Convert bounds of token weights, and rejection of responses by the geometric mean of their tokens' ratios."""
    level = theirs["algo.advantage.is_correction_level"]
    mode = theirs.get("algo.advantage.is_correction_mode", "mask")
    bounds = theirs.get("algo.advantage.is_correction_threshold")
    if theirs.get("enable_vllm_is_correction"):  # the name in versions 0.8 and 0.9
        kind = theirs.get("vllm_is_correction_type", "tis")
        level, mode = "seq" if kind == "seq-mask-tis" else "token", "clip" if kind == "tis" else "mask"
        bounds = theirs.get("vllm_is_truncated_threshold")
    if level == "off":
        return Converted({f"{CORRECTION}.level": "off"})
    bounds = bounds or [0.5, 5.0]
    bounds = bounds if isinstance(bounds, list) else [bounds]
    lower, upper = bounds if len(bounds) == 2 else (0.0, bounds[0])
    if level == "seq":
        return Converted(
            {
                f"{CORRECTION}.level": "token",
                f"{CORRECTION}.upper": UNBOUNDED,
                f"{CORRECTION}.rejection": "geometric",
                f"{CORRECTION}.rejection_lower": lower,
                f"{CORRECTION}.rejection_upper": upper,
            },
            "responses are dropped by the geometric mean of their tokens' ratios",
        )
    note = "weights are bounded above alone" if mode == "clip" and lower else ""
    mode = "truncate" if mode == "clip" else "mask"
    found = {"level": level, "mode": mode, "lower": lower, "upper": upper}
    return Converted({f"{CORRECTION}.{name}": value for name, value in found.items()}, note)


def reward_clip(theirs: Theirs) -> Converted:
    low, high = theirs["reward.clip_range"]
    note = "of the score; there of what the comparison with others has made of it"
    note = note if -low == high else f"{note}; symmetric here"
    return Converted({"algorithm.reward_clip": float(max(abs(low), abs(high)))}, note)


def overlong(theirs: Theirs) -> Converted:
    return Converted({"algorithm.overlong_buffer_len": int(theirs["reward.overlong_buffer_len"] or 0)})


def train_files(theirs: Theirs) -> Converted:
    found = entries(theirs.get("data.prompt_dataset"), split=theirs["data.prompt_split"])
    return Converted({"data.train_files": found}, FILES_NOTE)


def train_weights(theirs: Theirs) -> Converted:
    weights = [float(weight) for weight in str(theirs["data.prompt_probs"] or "").split(",") if weight.strip()]
    note = "an epoch has as many prompts as there are rows; there it lasts until each file was seen whole"
    return Converted({"data.train_weights": weights}, note)


def val_files(theirs: Theirs) -> Converted:
    return Converted({"data.val_files": entries(theirs.get("eval.dataset"), split=theirs["eval.split"])}, FILES_NOTE)


def max_samples(theirs: Theirs) -> Converted:
    count = int(theirs["data.max_samples"])
    found = dict.fromkeys(("data.train_max_samples", "data.val_max_samples"), count if count < MANY else -1)
    return Converted(found, "chosen by the seed; data.shuffle=false takes the first ones, as there")


def template(theirs: Theirs) -> Converted:
    """Convert a template in which ``{}`` stands for the prompt."""
    text = theirs["data.input_template"]
    if isinstance(text, list):
        raise ValueError("it has several words; quote it as one")
    if text and theirs["data.apply_chat_template"]:
        return Converted(note="it is not read beside data.apply_chat_template, there as here")
    return Converted({"data.format_prompt": str(text).replace("{}", "{{ content }}")} if text else {})


def reward_function(theirs: Theirs) -> Converted:
    url = theirs["reward.remote_url"]
    if not url:
        return Converted()
    if isinstance(url, list) or "," in str(url):
        raise ValueError("it names several; one function or server scores here, which may ask others")
    if str(url).endswith(".py"):
        return Converted({"reward.function": f"{url}:reward_func"}, "reward_func of that file")
    return Converted({"reward.function": "remote_http", "reward.function_kwargs": {"url": url, "protocol": "openrlhf"}})


def reward_model(theirs: Theirs) -> Converted:
    """Convert the reward model, which also initialises a critic without its own model."""
    path = theirs["reward.model_name_or_path"]
    if theirs.get("reward.remote_url"):
        return Converted(note="not loaded there either, where a function or a server scores")
    if isinstance(path, list) or "," in str(path):
        raise ValueError("it names several models; one scores here. Write a function that asks them (reward.function)")
    found = {"reward.model.path": path}
    if path and not theirs.get("critic.model_name_or_path"):
        return Converted({**found, "critic.path": path}, "a critic starts from it too, where none is named")
    return Converted(found)


def loggers(theirs: Theirs) -> Converted:
    found = ["console", "jsonl", "tensorboard"]
    return Converted({"trainer.loggers": [*found, "wandb"] if theirs.get("logger.wandb.key") else found})


def resume(theirs: Theirs) -> Converted:
    return Converted({"trainer.resume": "auto"}, "a run continues from its own checkpoints by itself")


CONVERTERS: dict[str, Converter] = {
    function.__name__: function
    for function in (
        clip,
        betas,
        lengths,
        mini_batch,
        policy_loss,
        epochs,
        test_freq,
        token_budgets,
        estimator,
        kl,
        correction,
        reward_clip,
        overlong,
        train_files,
        train_weights,
        val_files,
        max_samples,
        template,
        reward_function,
        reward_model,
        loggers,
        resume,
    )
}
