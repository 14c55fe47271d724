"""Converters for verl keys that have no direct equivalent, or whose numbers have another meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_like_migrate.converters import Converted, Converter, as_bool, in_updates, two_betas, without_name
from verl_like_migrate.verl_corrections import importance_weights, rejection

ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout"
PeerValues = Mapping[str, Any]


def overlong_prompts(values: PeerValues) -> Converted:
    """Convert ``truncation``; ``left`` keeps the end of a prompt, like ``truncate`` in verl_like."""
    truncation = values["data.truncation"]
    if truncation not in ("error", "left", "right", "middle"):
        raise ValueError(f"truncation is {truncation}; expected error, left, right or middle")
    if values["data.filter_overlong_prompts"]:
        return Converted({"data.overlong_prompts": "drop"})
    if truncation in ("error", "left"):
        return Converted({"data.overlong_prompts": "truncate" if truncation == "left" else "error"})
    return Converted(
        {"data.overlong_prompts": "error"},
        f"truncation={truncation} would cut a prompt's end or middle; verl_like refuses or drops long prompts, or cuts "
        "their beginning (data.overlong_prompts)",
    )


def clip_ratio(values: PeerValues) -> Converted:
    bounds = {"actor.clip_ratio_low": f"{ACTOR}.clip_ratio_low", "actor.clip_ratio_high": f"{ACTOR}.clip_ratio_high"}
    missing = {ours: values[f"{ACTOR}.clip_ratio"] for ours, key in bounds.items() if values.get(key) is None}
    return Converted(missing, "for each bound without its own value")


def actor_kl(values: PeerValues) -> Converted:
    is_on = as_bool(values[f"{ACTOR}.use_kl_loss"])
    return Converted({"actor.kl_loss_coef": values[f"{ACTOR}.kl_loss_coef"] if is_on else 0.0}, "0 is off")


def reward_kl(values: PeerValues) -> Converted:
    if not as_bool(values["algorithm.use_kl_in_reward"]):
        return Converted({"algorithm.kl_coef": 0.0}, "0 is off")
    control = {name: values[f"algorithm.kl_ctrl.{name}"] for name in ("type", "kl_coef", "target_kl", "horizon")}
    found = {"algorithm.kl_coef": control["kl_coef"]}
    if control["type"] not in ("fixed", "adaptive"):
        raise ValueError(f"kl_ctrl.type is {control['type']}; expected fixed or adaptive")
    if control["type"] == "adaptive":
        found |= {"algorithm.kl_target": control["target_kl"], "algorithm.kl_horizon": control["horizon"]}
    return Converted(found)


def clip_cov(values: PeerValues) -> Converted:
    return Converted(
        note="verl bounds a covariance; verl_like's clip_cov selects by rank, actor.clip_cov_rank_low and _high, whose "
        "defaults are the paper's"
    )


def betas(values: PeerValues) -> Converted:
    return two_betas(values, {f"{ACTOR}.optim.betas": "actor.optim", "critic.optim.betas": "critic.optim"})


def warmup(values: PeerValues) -> Converted:
    """Convert warm-up from training steps in verl to optimiser updates."""
    found: dict[str, Any] = {}
    roles = (
        ("actor_rollout_ref.actor.optim", "actor.optim", f"{ACTOR}.ppo_mini_batch_size", f"{ACTOR}.ppo_epochs"),
        ("critic.optim", "critic.optim", "critic.ppo_mini_batch_size", "critic.ppo_epochs"),
    )
    for section, ours, mini_batch, epochs in roles:
        steps, frac = values.get(f"{section}.lr_warmup_steps"), values.get(f"{section}.lr_warmup_steps_ratio")
        updates = in_updates(values["data.train_batch_size"], values[mini_batch], values[epochs])
        if steps is not None and steps >= 0:
            found[f"{ours}.warmup_steps"] = steps * updates
        elif frac:
            found[f"{ours}.warmup_frac"] = frac
    return Converted(found, "verl counts training steps, verl_like optimiser updates")


def token_budgets(values: PeerValues) -> Converted:
    """Return the tokens of a forward pass: the given budget, or rows times the longest row."""
    longest = int(values["data.max_prompt_length"]) + int(values["data.max_response_length"])
    roles = {
        "actor": (f"{ACTOR}.use_dynamic_bsz", f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ACTOR}.ppo_micro_batch_size"),
        "ref": (
            f"{REF}.log_prob_use_dynamic_bsz",
            f"{REF}.log_prob_max_token_len_per_gpu",
            f"{REF}.log_prob_micro_batch_size",
        ),
        "critic": ("critic.use_dynamic_bsz", "critic.ppo_max_token_len_per_gpu", "critic.ppo_micro_batch_size"),
        "reward.model": (
            "reward_model.use_dynamic_bsz",
            "reward_model.forward_max_token_len_per_gpu",
            "reward_model.micro_batch_size",
        ),
    }
    found: dict[str, Any] = {}
    num_gpus = int(values["trainer.n_gpus_per_node"]) * int(values["trainer.nnodes"])
    for role, (is_dynamic, tokens, rows) in roles.items():
        micro_batch = values.get(f"{rows}_per_gpu")
        if not micro_batch and values.get(rows):  # total of all ranks with different rows
            sharing = values.get(f"{rows.rpartition('.')[0]}.ulysses_sequence_parallel_size") or 1
            micro_batch = max(1, int(values[rows]) * int(sharing) // num_gpus)
        if role == "actor" and not micro_batch and not values.get(is_dynamic):
            # The actor computes the old log-probs; since 0.9 its engine gets both budgets.
            is_dynamic, tokens = f"{ROLLOUT}.log_prob_use_dynamic_bsz", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"
            micro_batch = values.get(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu")
            if not micro_batch and values.get(f"{ROLLOUT}.log_prob_micro_batch_size"):
                micro_batch = max(1, int(values[f"{ROLLOUT}.log_prob_micro_batch_size"]) // num_gpus)
        if values.get(is_dynamic) and values.get(tokens):
            found[f"{role}.max_tokens_per_micro_batch"] = str(values[tokens])
        elif micro_batch:
            found[f"{role}.max_tokens_per_micro_batch"] = str(int(micro_batch) * longest)
    return Converted(found, f"token budgets; {longest} tokens per row if rows were given; auto would choose them")


def validation_sampling(values: PeerValues) -> Converted:
    sampled = values[f"{ROLLOUT}.val_kwargs.do_sample"]
    temperature = values[f"{ROLLOUT}.val_kwargs.temperature"] if sampled else 0.0
    number = values.get(f"{ROLLOUT}.val_kwargs.n")
    found = {"rollout.val.temperature": temperature} | ({} if number is None else {"rollout.val.n": number})
    if temperature == 0 and number is not None and number > 1:
        return Converted(found | {"rollout.val.n": 1}, f"0 is greedy, and all {number} responses would be the same")
    return Converted(found, "0 is greedy")


def reward_function(values: PeerValues) -> Converted:
    for section in ("reward.custom_reward_function", "custom_reward_function"):
        path = values.get(f"{section}.path")
        if path:
            if str(path).startswith("pkg://"):
                raise ValueError(f"{path} names a module; write the path of its .py file")
            name = values.get(f"{section}.name") or "compute_score"
            return Converted({"reward.function": f"{str(path).removeprefix('file://')}:{name}"})
    return Converted(note="no file; the data_source of each row selects the function")


def reward_kwargs(values: PeerValues) -> Converted:
    """Convert the arguments of verl's reward manager; ``batch`` passes all of them to the function."""
    found: dict[str, Any] = {}
    for section in ("reward.reward_kwargs.", "reward_model.reward_kwargs."):
        for key, value in values.items():
            name = key.removeprefix(section)
            if key.startswith(section) and name != "max_resp_len" and not name.startswith("overlong_buffer_cfg"):
                found[f"reward.function_kwargs.{name}"] = value
    return Converted(found, "the batch manager passes these on to the function")


def max_resp_len(values: PeerValues) -> Converted:
    """Check the length with the full over-long penalty, which is always the longest response in verl_like."""
    longest = values["data.max_response_length"]
    for section in ("reward.reward_kwargs", "reward_model.reward_kwargs"):
        wanted = values.get(f"{section}.max_resp_len")
        if wanted not in (None, longest):
            raise ValueError(
                f"the full penalty applies at data.max_response_length={longest}, but {section}.max_resp_len is "
                f"{wanted}; write the same number for both"
            )
    return Converted(note="the full penalty applies at data.max_response_length")


def reward_model(values: PeerValues) -> Converted:
    for section, path in (("reward.reward_model", "model_path"), ("reward_model", "model.path")):
        if values.get(f"{section}.enable"):
            return Converted({"reward.model.path": values.get(f"{section}.{path}") or ""})
    return Converted(note="off")


def token_level_loss(values: PeerValues) -> Converted:
    """Convert the name that the first DAPO recipe used."""
    is_on = values[f"{ACTOR}.use_token_level_loss"]
    return Converted({"actor.loss_aggregation": "token-mean" if is_on else "seq-mean-token-mean"})


def overlong_buffer(values: PeerValues) -> Converted:
    for section in (
        "reward.reward_kwargs.overlong_buffer_cfg",
        "reward_model.reward_kwargs.overlong_buffer_cfg",
        "reward_model.overlong_buffer",
        "custom_reward_function.overlong_buffer",
    ):
        if values.get(f"{section}.enable"):
            return Converted(
                {
                    "algorithm.overlong_buffer_len": values[f"{section}.len"],
                    "algorithm.overlong_penalty_factor": values.get(f"{section}.penalty_factor", 1.0),
                }
            )
    return Converted({"algorithm.overlong_buffer_len": 0}, "off")


def object_store(values: PeerValues) -> Converted:
    return Converted({"cluster.object_store_memory_gib": values["ray_kwargs.ray_init.object_store_memory"] / 2**30})


def gpg_loss(values: PeerValues) -> Converted:
    """Convert the name that verl used before its losses had names."""
    return Converted({"actor.policy_loss": "gpg"} if values[f"{ACTOR}.use_gpg_loss"] else {})


def experiment_name(values: PeerValues) -> Converted:
    name = str(values["trainer.experiment_name"])
    note = "the run's folder has this name, which cannot be a path" if "/" in name else ""
    return Converted({"trainer.experiment_name": name.replace("/", "_")}, note)


def pf_ppo(values: PeerValues) -> Converted:
    is_on = values.get("algorithm.use_pf_ppo")
    return Converted({"algorithm.pf_ppo": values.get("algorithm.pf_ppo.reweight_method", "pow") if is_on else "off"})


def max_num_gen_batches(values: PeerValues) -> Converted:
    batches = values["algorithm.filter_groups.max_num_gen_batches"]
    if batches:
        return Converted({"algorithm.max_num_gen_batches": batches})
    return Converted(note="0 is unlimited; the default of algorithm.max_num_gen_batches is kept")


def output_dir(values: PeerValues) -> Converted:
    """Convert the run's folder, which is output_dir/experiment_name in verl_like."""
    folder = without_name(values["trainer.default_local_dir"], values["trainer.experiment_name"])
    return Converted({"trainer.output_dir": folder}, "the run's folder in it has the experiment's name")


def remote_dir(values: PeerValues) -> Converted:
    """Convert like ``output_dir``; a path without a scheme is on HDFS."""
    kind, _, folder = (values["trainer.default_hdfs_dir"] or "").rpartition("://")
    if not folder:
        return Converted({"trainer.remote_dir": ""})
    url = f"{kind or 'hdfs'}://{without_name(folder, values['trainer.experiment_name'])}"
    return Converted({"trainer.remote_dir": url}, "the run's copy in it has the experiment's name")


def resume(values: PeerValues) -> Converted:
    mode = values.get("trainer.resume_mode", "auto")
    if mode not in ("auto", "disable", "resume_path"):
        raise ValueError(f"resume_mode is {mode}; expected auto, disable or resume_path")
    if mode == "resume_path":
        return Converted(
            {"trainer.resume": values.get("trainer.resume_from_path") or "auto"}, "must be a checkpoint of verl_like"
        )
    return Converted({"trainer.resume": "never" if mode == "disable" else "auto"})


def saved_samples(values: PeerValues) -> Converted:
    """Convert verl's folders of all responses and its number of validation samples into one number."""
    if any(values.get(f"trainer.{name}_data_dir") for name in ("rollout", "validation")):
        return Converted({"trainer.num_samples_to_save": -1}, "all responses are in samples/ of the run's folder")
    if number := values.get("trainer.log_val_generations"):
        return Converted({"trainer.num_samples_to_save": number})
    return Converted(note="off in verl; verl_like saves some samples (trainer.num_samples_to_save)")


CONVERTERS: dict[str, Converter] = {
    function.__name__: function
    for function in (
        overlong_prompts,
        clip_ratio,
        actor_kl,
        reward_kl,
        clip_cov,
        betas,
        warmup,
        token_budgets,
        validation_sampling,
        reward_function,
        reward_kwargs,
        max_resp_len,
        reward_model,
        token_level_loss,
        overlong_buffer,
        importance_weights,
        rejection,
        object_store,
        gpg_loss,
        experiment_name,
        pf_ppo,
        max_num_gen_batches,
        output_dir,
        remote_dir,
        resume,
        saved_samples,
    )
}
