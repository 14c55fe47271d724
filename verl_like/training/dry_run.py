"""``--dry-run`` of the training commands: all checks that a run makes before it starts its workers."""

from __future__ import annotations

from verl_like.config.schema import Config
from verl_like.plan.check import check_memory
from verl_like.training.row_jobs import ROW_JOBS
from verl_like.training.tasks import check_reward, task_of

_REWARD = "reward      tried on a response to each data source; every ground truth was read"


def dry_run(config: Config, *, command: str) -> str:
    """Return the findings, one per line.

    Args:
        command: "train", or one that trains on given rows.

    Raises:
        ValueError: a check that would refuse the run.
    """
    return _train(config) if command == "train" else _rows(config, command)


def _train(config: Config) -> str:
    task = task_of(config)
    plan = check_memory(config)
    check_reward(config, task.prompts, task.val_prompts)
    validation = f"{len(task.val_prompts)} to validate on" if task.val_prompts is not None else "no validation"
    if plan is None:
        memory = "not planned: the model is not on this machine yet, or the devices are unknown"
    else:
        memory = "the plan fits" if plan.fits else "the plan does not fit: see the warning above, and `verl-like plan`"
    return (
        f"prompts     {len(task.prompts)} to train on, {validation}; data sources {', '.join(task.data_sources)}\n"
        f"steps       {task.steps} of {config.data.train_batch_size} prompts with {config.rollout.n} responses each\n"
        f"{_REWARD}\n"
        f"memory      {memory}"
    )


def _rows(config: Config, command: str) -> str:
    task = ROW_JOBS[command].task_of(config)
    noun, num_items = ("pairs" if task.rows_per_item == 2 else "rows"), len(task.rows) // task.rows_per_item
    held_out = f", {len(task.val_rows) // task.rows_per_item} to validate on" if task.val_rows is not None else ""
    if task.val_prompts:
        check_reward(config, task.val_prompts)
    reward = f"\n{_REWARD}" if task.val_prompts else ""
    longest = {name: int(task.rows.ragged(name).lengths.max()) for name in ("prompt_ids", "response_ids")}
    return (
        f"{noun:<12}{num_items} to train on{held_out}; the longest prompt has {longest['prompt_ids']} tokens, "
        f"the longest answer {longest['response_ids']}\n"
        f"steps       {task.steps} of {config.data.train_batch_size} {noun} each{reward}"
    )
