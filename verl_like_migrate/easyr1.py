"""Converters for EasyR1 keys that have no direct equivalent, or whose numbers have another meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_like_migrate.converters import Converted, Converter, entries, in_updates, two_betas, without_name

KL_TYPES = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
ROLES = {"worker.actor": "actor", "worker.critic": "critic"}
FILES_NOTE = "NAME@SPLIT is hf:NAME:SPLIT"
WITHOUT_END = 1000
Theirs = Mapping[str, Any]


def kl(theirs: Theirs) -> Converted:
    """Convert the KL coefficient, which applies to the loss or to the reward; ``disable_kl`` removes the reference."""
    coef = 0.0 if theirs["algorithm.disable_kl"] else theirs["algorithm.kl_coef"]
    kind = KL_TYPES.get(theirs["algorithm.kl_penalty"], theirs["algorithm.kl_penalty"])
    if theirs["algorithm.use_kl_loss"]:
        return Converted(
            {"actor.kl_loss_coef": coef, "actor.kl_loss_type": kind, "algorithm.kl_coef": 0.0}, "in the loss"
        )
    found = {"algorithm.kl_coef": coef, "algorithm.kl_type": kind, "actor.kl_loss_coef": 0.0}
    if coef and theirs["algorithm.kl_type"] == "adaptive":
        found |= {
            "algorithm.kl_target": theirs["algorithm.kl_target"],
            "algorithm.kl_horizon": int(theirs["algorithm.kl_horizon"]),
        }
    return Converted(found, "in the reward" if coef else "0 is off")


def train_files(theirs: Theirs) -> Converted:
    return Converted({"data.train_files": _entries(theirs["data.train_files"])}, FILES_NOTE)


def val_files(theirs: Theirs) -> Converted:
    return Converted({"data.val_files": _entries(theirs["data.val_files"])}, FILES_NOTE)


def _entries(names: str | list[str] | None) -> list[str]:
    """Convert entries ``NAME@SPLIT``; a split of a file is the file."""
    listed = [names] if isinstance(names, str) else names or []
    pairs = [str(name).partition("@")[::2] for name in listed]
    return [entry for name, split in pairs for entry in entries([name], split=split or "train")]


def betas(theirs: Theirs) -> Converted:
    return two_betas(theirs, {f"{section}.optim.betas": f"{ours}.optim" for section, ours in ROLES.items()})


def warmup(theirs: Theirs) -> Converted:
    found: dict[str, Any] = {}
    for section, ours in ROLES.items():
        updates = in_updates(
            theirs["data.rollout_batch_size"],
            theirs[f"{section}.global_batch_size"],
            theirs.get(f"{section}.ppo_epochs") or 1,
        )
        steps, frac = theirs.get(f"{section}.optim.lr_warmup_steps"), theirs.get(f"{section}.optim.lr_warmup_ratio")
        if steps is not None:
            found[f"{ours}.optim.warmup_steps"] = steps * updates
        elif frac:
            found[f"{ours}.optim.warmup_frac"] = frac
    return Converted(found, "steps of training there, updates of the optimiser here")


def token_budgets(theirs: Theirs) -> Converted:
    """Return budgets of rows times the longest row, also for dynamic batching, which has no separate budget there."""
    longest = int(theirs["data.max_prompt_length"]) + int(theirs["data.max_response_length"])
    found: dict[str, Any] = {}
    for section, ours in ROLES.items():
        rows = theirs.get(f"{section}.micro_batch_size_per_device_for_update")
        if rows:
            found[f"{ours}.max_tokens_per_micro_batch"] = str(int(rows) * longest)
    rows = theirs.get("worker.actor.micro_batch_size_per_device_for_experience")
    if rows:
        found["ref.max_tokens_per_micro_batch"] = str(int(rows) * longest)
    return Converted(found, f"budgets of tokens: rows x {longest}; auto chooses by itself")


def max_num_gen_batches(theirs: Theirs) -> Converted:
    """Convert from batches of ``mini_rollout_batch_size``, if it is given, to batches of a whole step."""
    tries, step = int(theirs.get("trainer.max_try_make_batch") or 20), int(theirs["data.rollout_batch_size"])
    if tries < 0:
        return Converted({"algorithm.max_num_gen_batches": WITHOUT_END}, "-1 would draw without end")
    drawn = int(theirs.get("data.mini_rollout_batch_size") or step)
    return Converted({"algorithm.max_num_gen_batches": -(-tries * drawn // step)}, f"batches of {step} prompts")


def output_dir(theirs: Theirs) -> Converted:
    path = theirs["trainer.save_checkpoint_path"]
    if path is None:
        return Converted(note="trainer.output_dir/experiment_name")
    return Converted(
        {"trainer.output_dir": without_name(path, theirs["trainer.experiment_name"])},
        "the run's folder is the experiment's name in it",
    )


def resume(theirs: Theirs) -> Converted:
    path = theirs.get("trainer.load_checkpoint_path")
    finds = theirs.get("trainer.find_last_checkpoint", True)
    return Converted({"trainer.resume": path or ("auto" if finds else "never")})


CONVERTERS: dict[str, Converter] = {
    function.__name__: function
    for function in (train_files, val_files, kl, betas, warmup, token_budgets, max_num_gen_batches, output_dir, resume)
}
