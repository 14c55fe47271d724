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
FILES_NOTE = "files of jsonl or parquet; other names become hf:NAME:SPLIT"
PeerValues = Mapping[str, Any]


def clip(values: PeerValues) -> Converted:
    low, high = values.get("actor.eps_clip_low_high") or [values["actor.eps_clip"]] * 2
    return Converted({"actor.clip_ratio_low": low, "actor.clip_ratio_high": high})


def betas(values: PeerValues) -> Converted:
    return two_betas(values, {"actor.adam.betas": "actor.optim", "critic.adam.betas": "critic.optim"})


def _lengths(values: PeerValues) -> tuple[int, int]:
    """Return the maximum tokens of a prompt and of a response; OpenRLHF limits their sum, older versions each."""
    longest, response = int(values["data.max_len"]), values.get("rollout.max_new_tokens")
    if "data.prompt_max_len" in values:
        return int(values["data.prompt_max_len"]), OLD_LENGTH if response is None else int(response)
    response = int(response) if response is not None else longest // 2
    return (longest - response if response < longest else OLD_LENGTH), response


def lengths(values: PeerValues) -> Converted:
    prompt, response = _lengths(values)
    return Converted(
        {"data.max_response_length": response, "data.max_prompt_length": prompt},
        f"the prompt may have {prompt} tokens, the response {response}",
    )


def mini_batch(values: PeerValues) -> Converted:
    """Convert from responses to prompts; a step has a whole number of mini-batches."""
    responses, n = int(values["train.batch_size"]), int(values["rollout.n_samples_per_prompt"])
    step = int(values["rollout.batch_size"])
    if isinstance(values["train.batch_size"], bool) or responses < 1:
        raise ValueError(f"train_batch_size is {values['train.batch_size']}; expected a number of responses")
    divisors = [prompts for prompts in range(1, step + 1) if step % prompts == 0]
    prompts = min(divisors, key=lambda each: abs(each * n - responses))
    note = f"{responses} responses are {prompts} prompts of {n}"
    if prompts * n != responses:
        note = f"{responses} responses are not a whole number of prompts that divides {step}; {prompts * n} are closest"
    return Converted({"actor.mini_batch_size": prompts, "critic.mini_batch_size": prompts}, note)


def policy_loss(values: PeerValues) -> Converted:
    kind, aggregation = values.get("actor.policy_loss_type", "ppo"), values.get("actor.loss_agg_mode")
    aggregation = "seq-mean-token-mean" if kind == "gspo" else aggregation
    return Converted(
        {"actor.policy_loss": kind} | ({"actor.loss_aggregation": aggregation} if aggregation else {}),
        "gspo is a mean over responses" if kind == "gspo" else "",
    )


def epochs(values: PeerValues) -> Converted:
    return Converted(dict.fromkeys(("actor.epochs", "critic.epochs"), int(values["train.max_epochs"])))


def test_freq(values: PeerValues) -> Converted:
    if not values.get("eval.dataset"):
        return Converted(note="there is no validation data")
    return Converted({"trainer.test_freq": max(int(values["eval.steps"]), 0)})


def token_budgets(values: PeerValues) -> Converted:
    if values["train.dynamic_batch_enable"]:
        forward = values.get("rollout.max_tokens_per_gpu") or values["train.max_tokens_per_gpu"]
        update = values["train.max_tokens_per_gpu"]
    else:
        longest = sum(_lengths(values))
        forward = int(values["rollout.micro_batch_size"]) * longest
        update = int(values["train.micro_batch_size"]) * longest
    return Converted(
        {
            "actor.max_tokens_per_micro_batch": str(update),
            "critic.max_tokens_per_micro_batch": str(update),
            "ref.max_tokens_per_micro_batch": str(forward),
        },
        "token budgets; auto would choose them",
    )


def estimator(values: PeerValues) -> Converted:
    name = values["algo.advantage.estimator"]
    found = dict(ESTIMATORS.get(name, {"algorithm.adv_estimator": name}))
    if values.get("algo.advantage.no_std_norm") and name in WHITENED:
        raise ValueError(
            f"OpenRLHF centres {name} without dividing it, which no estimator of verl_like does; dr_grpo is close"
        )
    return Converted(found)


def kl(values: PeerValues) -> Converted:
    coef, kind = values["algo.kl.init_coef"], values["algo.kl.estimator"]
    if values["algo.kl.use_loss"]:
        plus = "+" if values.get("algo.kl.unbiased_gradient") else ""
        return Converted({"actor.kl_loss_coef": coef, "actor.kl_loss_type": kind + plus, "algorithm.kl_coef": 0.0})
    compares = coef and values["algo.advantage.estimator"] not in ("gae", "reinforce")
    note = (
        "subtracted from the scores before the comparison in a group; OpenRLHF subtracts it after" if compares else ""
    )
    return Converted({"algorithm.kl_coef": coef, "algorithm.kl_type": kind, "actor.kl_loss_coef": 0.0}, note)


def correction(values: PeerValues) -> Converted:
    """Convert bounds of token weights, and rejection of responses by the geometric mean of their tokens' ratios."""
    level = values["algo.advantage.is_correction_level"]
    mode = values.get("algo.advantage.is_correction_mode", "mask")
    bounds = values.get("algo.advantage.is_correction_threshold")
    if values.get("enable_vllm_is_correction"):  # the name in versions 0.8 and 0.9
        kind = values.get("vllm_is_correction_type", "tis")
        level, mode = "seq" if kind == "seq-mask-tis" else "token", "clip" if kind == "tis" else "mask"
        bounds = values.get("vllm_is_truncated_threshold")
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
    note = "weights have only an upper bound" if mode == "clip" and lower else ""
    mode = "truncate" if mode == "clip" else "mask"
    found = {"level": level, "mode": mode, "lower": lower, "upper": upper}
    return Converted({f"{CORRECTION}.{name}": value for name, value in found.items()}, note)


def reward_clip(values: PeerValues) -> Converted:
    low, high = values["reward.clip_range"]
    note = "clips the score; OpenRLHF clips the result of the comparison in a group"
    note = note if -low == high else f"{note}; symmetric in verl_like"
    return Converted({"algorithm.reward_clip": float(max(abs(low), abs(high)))}, note)


def overlong(values: PeerValues) -> Converted:
    return Converted({"algorithm.overlong_buffer_len": int(values["reward.overlong_buffer_len"] or 0)})


def train_files(values: PeerValues) -> Converted:
    found = entries(values.get("data.prompt_dataset"), split=values["data.prompt_split"])
    return Converted({"data.train_files": found}, FILES_NOTE)


def train_weights(values: PeerValues) -> Converted:
    return weights_of(values["data.prompt_probs"])


def weights_of(probabilities: Any) -> Converted:
    """Convert probabilities of files, separated by commas."""
    weights = [float(weight) for weight in str(probabilities or "").split(",") if weight.strip()]
    note = "an epoch has as many prompts as there are rows; in OpenRLHF it ends when every file was read completely"
    return Converted({"data.train_weights": weights}, note)


def val_files(values: PeerValues) -> Converted:
    return Converted({"data.val_files": entries(values.get("eval.dataset"), split=values["eval.split"])}, FILES_NOTE)


def max_samples(values: PeerValues) -> Converted:
    count = int(values["data.max_samples"])
    found = dict.fromkeys(("data.train_max_samples", "data.val_max_samples"), count if count < MANY else -1)
    return Converted(found, "selected by the seed; data.shuffle=false takes the first ones, as OpenRLHF does")


def template(values: PeerValues) -> Converted:
    """Convert a template in which ``{}`` stands for the prompt; OpenRLHF ignores one without it."""
    text = values["data.input_template"]
    if isinstance(text, list):
        raise ValueError("it has several words; quote it as one")
    if text and values["data.apply_chat_template"]:
        return Converted(note="ignored with data.apply_chat_template, as in OpenRLHF")
    if text and "{}" not in str(text):
        return Converted(note="ignored without {}, as in OpenRLHF")
    end = "\n" * str(text).endswith("\n")  # Jinja removes a newline at the end
    return Converted({"data.format_prompt": str(text).replace("{}", "{{ content }}") + end} if text else {})


def reward_function(values: PeerValues) -> Converted:
    url = values["reward.remote_url"]
    if not url:
        return Converted()
    if isinstance(url, list) or "," in str(url):
        raise ValueError("it names several; verl_like calls one function or server, which may call others")
    if str(url).endswith(".py"):
        return Converted({"reward.function": f"{url}:reward_func"}, "the function reward_func of that file")
    return Converted({"reward.function": "remote_http", "reward.function_kwargs": {"url": url, "protocol": "openrlhf"}})


def reward_model(values: PeerValues) -> Converted:
    """Convert the reward model, which also initialises a critic without its own model."""
    path = values["reward.model_name_or_path"]
    if values.get("reward.remote_url"):
        return Converted(note="not loaded, as in OpenRLHF, because a function or a server scores")
    if isinstance(path, list) or "," in str(path):
        raise ValueError(
            "it names several models; verl_like uses one. Write a function that calls them (reward.function)"
        )
    found = {"reward.model.path": path}
    if path and not values.get("critic.model_name_or_path"):
        return Converted({**found, "critic.path": path}, "a critic also starts from it if none is given")
    return Converted(found)


def loggers(values: PeerValues) -> Converted:
    found = ["console", "jsonl", "tensorboard"]
    return Converted({"trainer.loggers": [*found, "wandb"] if values.get("logger.wandb.key") else found})


def resume(values: PeerValues) -> Converted:
    return Converted({"trainer.resume": "auto"}, "a run continues from its own checkpoints automatically")


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
