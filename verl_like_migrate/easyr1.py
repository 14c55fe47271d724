"""Converters for EasyR1 keys that have no direct equivalent, or whose numbers have another meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_like_migrate.converters import Converted, Converter, entries, in_updates, two_betas, without_name

KL_TYPES = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
ROLES = {"worker.actor": "actor", "worker.critic": "critic"}
FILES_NOTE = "NAME@SPLIT is hf:NAME:SPLIT"
WITHOUT_END = 1000
PeerValues = Mapping[str, Any]


def kl(values: PeerValues) -> Converted:
    """Convert the KL coefficient, which applies to the loss or to the reward; ``disable_kl`` removes the reference."""
    coef = 0.0 if values["algorithm.disable_kl"] else values["algorithm.kl_coef"]
    kind = KL_TYPES.get(values["algorithm.kl_penalty"], values["algorithm.kl_penalty"])
    if values["algorithm.use_kl_loss"]:
        return Converted(
            {"actor.kl_loss_coef": coef, "actor.kl_loss_type": kind, "algorithm.kl_coef": 0.0}, "in the loss"
        )
    found = {"algorithm.kl_coef": coef, "algorithm.kl_type": kind, "actor.kl_loss_coef": 0.0}
    if coef and values["algorithm.kl_type"] == "adaptive":
        found |= {
            "algorithm.kl_target": values["algorithm.kl_target"],
            "algorithm.kl_horizon": int(values["algorithm.kl_horizon"]),
        }
    return Converted(found, "in the reward" if coef else "0 is off")


def train_files(values: PeerValues) -> Converted:
    return Converted({"data.train_files": _entries(values["data.train_files"])}, FILES_NOTE)


def val_files(values: PeerValues) -> Converted:
    return Converted({"data.val_files": _entries(values["data.val_files"])}, FILES_NOTE)


def _entries(names: str | list[str] | None) -> list[str]:
    """Convert entries ``NAME@SPLIT``; a split of a file is the file."""
    listed = [names] if isinstance(names, str) else names or []
    pairs = [str(name).partition("@")[::2] for name in listed]
    return [entry for name, split in pairs for entry in entries([name], split=split or "train")]


def betas(values: PeerValues) -> Converted:
    return two_betas(values, {f"{section}.optim.betas": f"{role}.optim" for section, role in ROLES.items()})


def warmup(values: PeerValues) -> Converted:
    found: dict[str, Any] = {}
    for section, role in ROLES.items():
        updates = in_updates(
            values["data.rollout_batch_size"],
            values[f"{section}.global_batch_size"],
            values.get(f"{section}.ppo_epochs") or 1,
        )
        steps, frac = values.get(f"{section}.optim.lr_warmup_steps"), values.get(f"{section}.optim.lr_warmup_ratio")
        if steps is not None:
            found[f"{role}.optim.warmup_steps"] = steps * updates
        elif frac:
            found[f"{role}.optim.warmup_frac"] = frac
    return Converted(found, "EasyR1 counts training steps, verl_like optimiser updates")


def token_budgets(values: PeerValues) -> Converted:
    """Return budgets of rows times the longest row, also for dynamic batching, which EasyR1 gives no budget."""
    longest = int(values["data.max_prompt_length"]) + int(values["data.max_response_length"])
    found: dict[str, Any] = {}
    for section, role in ROLES.items():
        rows = values.get(f"{section}.micro_batch_size_per_device_for_update")
        if rows:
            found[f"{role}.max_tokens_per_micro_batch"] = str(int(rows) * longest)
    rows = values.get("worker.actor.micro_batch_size_per_device_for_experience")
    if rows:
        found["ref.max_tokens_per_micro_batch"] = str(int(rows) * longest)
    return Converted(found, f"token budgets, {longest} tokens per row; auto would choose them")


def max_num_gen_batches(values: PeerValues) -> Converted:
    """Convert from batches of ``mini_rollout_batch_size``, if it is given, to batches of a whole step."""
    tries, step = int(values.get("trainer.max_try_make_batch") or 20), int(values["data.rollout_batch_size"])
    if tries < 0:
        return Converted({"algorithm.max_num_gen_batches": WITHOUT_END}, "-1 is unlimited")
    drawn = int(values.get("data.mini_rollout_batch_size") or step)
    return Converted({"algorithm.max_num_gen_batches": -(-tries * drawn // step)}, f"batches of {step} prompts")


def output_dir(values: PeerValues) -> Converted:
    path = values["trainer.save_checkpoint_path"]
    if path is None:
        return Converted(note="trainer.output_dir/experiment_name")
    return Converted(
        {"trainer.output_dir": without_name(path, values["trainer.experiment_name"])},
        "the run's folder in it has the experiment's name",
    )


def resume(values: PeerValues) -> Converted:
    path = values.get("trainer.load_checkpoint_path")
    finds = values.get("trainer.find_last_checkpoint", True)
    return Converted({"trainer.resume": path or ("auto" if finds else "never")})


CONVERTERS: dict[str, Converter] = {
    function.__name__: function
    for function in (train_files, val_files, kl, betas, warmup, token_budgets, max_num_gen_batches, output_dir, resume)
}
