"""Rules on where the time of a run goes."""

from __future__ import annotations

import math

from verl_like.report.advice.rule import TUNING, Rule, Symptom
from verl_like.report.advice.run_view import STEP_S, RunView
from verl_like.report.advice.time_shares import share_of_step, step_seconds
from verl_like.report.advice.wording import changed, median_of, named, percent, scaled, seconds
from verl_like.telemetry.metrics import stages
from verl_like.telemetry.run_ledger import slowest

MAX_REWARD_FRAC = 0.2  # of a step, spent on scoring after the rollout; scoring should run meanwhile
MIN_SAMPLE_S = 1.0  # of the slowest sample, to be mentioned
MAX_CHECKPOINT_FRAC = 0.05  # of the run: copies run in the background
MAX_VALIDATION_FRAC = 0.3  # of the run
MAX_SYNC_FRAC = 0.2  # of a step; a sync is a copy of the weights
MAX_RANK_FRAC = 0.1  # of the run's steps that ranks wait for the slowest one
MAX_IMBALANCE = 1.2  # tokens of the busiest rank over the mean: a fifth of the others' time is lost
MAX_ENV_FRAC = 0.5  # of the episodes' time in which the engine has nothing to do for them
MIN_ROLLOUT_FRAC = 0.5  # of a step, so that these waits matter
SLOW_STEP_FACTOR, MAX_SLOW_FRAC = 6.0, 0.1  # slower than so many medians; share of the run's time in such steps


def a_rank_is_slow(view: RunView) -> Symptom | None:
    """Find the stage that loses most time to its slowest rank."""
    total = step_seconds(view)
    found = []
    for stage, who, waited in slowest({who: dict(of) for who, of in view.ledger.items()}) if total else []:
        group = who.partition(" rank ")[0]
        others = sum(name.startswith(f"{group} rank ") and stage in of for name, of in view.ledger.items()) - 1
        if not stage.startswith("build") and others > 0:
            found.append((waited / others, stage, who))
    if not found or max(found)[0] < MAX_RANK_FRAC * total:
        return None
    waited, stage, who = max(found)
    is_rollout = stage.startswith("rollout")
    option, value = ("rollout.dealing", "queue") if is_rollout else ("trainer.balance_by", "attention")
    remedy = "gives engines prompts as they have capacity" if is_rollout else "balances long rows better"
    is_refused = is_rollout and view.option("trainer.deterministic")  # the dealing of a queue is not repeated
    metric = f"time/{stage}_s" if f"time/{stage}_s" in view.series else None
    where = f"{stage} ({metric})" if metric else stage
    return Symptom(
        text=f"{where} waits for {who}: each other rank could have waited {seconds(waited)} for it, "
        f"{percent(waited / total)} of {STEP_S}. {option}={value} {remedy}. If it is always the same rank, compare its "
        f"machine with the others, and the threads that {named(view, 'cluster.threads_per_worker')} gives it.",
        metric=metric,
        knob=None if is_refused else changed(view, option, value),
    )


def tokens_are_uneven(view: RunView) -> Symptom | None:
    imbalance = view.window("balance/imbalance")
    if imbalance is None or imbalance.median < MAX_IMBALANCE or not step_seconds(view):
        return None
    return Symptom(
        text=f"The busiest rank has {imbalance.median:.2f} times the tokens of the mean ({median_of(imbalance)}), "
        f"because single rows are too long to be balanced. Raise {named(view, 'data.train_batch_size')} and "
        f"{named(view, 'actor.mini_batch_size')}, or split rows over ranks by actor.sequence_parallel_size.",
        metric=imbalance.metric,
        step=imbalance.last_step,
        knob=scaled(view, "data.train_batch_size", 2),
    )


def scoring_is_slow(view: RunView) -> Symptom | None:
    metric = "time/reward_wait_s"
    share, longest, timeout = share_of_step(view, metric), view.window("reward/seconds_max"), "reward.timeout_s"
    if share < MAX_REWARD_FRAC:
        return None
    is_long = longest is not None and longest.median >= MIN_SAMPLE_S
    slow = f"; the slowest sample takes {seconds(longest.median)} (reward/seconds_max)" if longest and is_long else ""
    return Symptom(
        text=f"{percent(share)} of a step is spent waiting for scores after the rollout ({metric}){slow}. Raise "
        f"{named(view, 'reward.num_workers')}, or reward.max_concurrency of an async function"
        f"{f'; a lower {timeout} cuts off the slowest samples' if is_long else ''}.",
        metric=metric,
        step=view.curve(metric).last_step,
        knob=scaled(view, "reward.num_workers", 2),
    )


def checkpoints_take_time(view: RunView) -> Symptom | None:
    waits, total = view.curve("checkpoint/wait_s"), step_seconds(view)
    if not waits or not total or waits.total < MAX_CHECKPOINT_FRAC * (total + waits.total):
        return None
    share = percent(waits.total / (total + waits.total))
    waits_for_writes = view.option("trainer.async_save") is False
    background = "Write them in the background, trainer.async_save=true; otherwise save" if waits_for_writes else "Save"
    return Symptom(
        text=f"The run waited {seconds(waits.total)} for checkpoints, {share} of its time ({waits.metric}). "
        f"{background} less often, {named(view, 'trainer.save_freq')}, or on a faster disk (trainer.output_dir).",
        metric=waits.metric,
        step=waits.last_step,
        knob="trainer.async_save=true" if waits_for_writes else scaled(view, "trainer.save_freq", 2),
    )


def validation_takes_time(view: RunView) -> Symptom | None:
    validations, total = view.curve("time/validation_s"), step_seconds(view)
    if not validations or not total or validations.total < MAX_VALIDATION_FRAC * (total + validations.total):
        return None
    share = percent(validations.total / (total + validations.total))
    return Symptom(
        text=f"{share} of the run was validation ({validations.metric}, {len(validations)} times). Validate less "
        f"often, {named(view, 'trainer.test_freq')}, or on fewer rows, {named(view, 'data.val_max_samples')}; "
        f"{named(view, 'rollout.val.n')} is the number of responses to each.",
        metric=validations.metric,
        step=validations.last_step,
        knob=scaled(view, "trainer.test_freq", 2),
    )


def sync_takes_time(view: RunView) -> Symptom | None:
    metric = "time/sync_s"
    share = share_of_step(view, metric)
    if share < MAX_SYNC_FRAC:
        return None
    return Symptom(
        text=f"{percent(share)} of a step is the weight sync ({metric}). Larger pieces, "
        f"{named(view, 'rollout.sync_bucket_mib')}, need fewer collectives; with adapters, rollout.lora=adapter sends "
        f"only these.",
        metric=metric,
        step=view.curve(metric).last_step,
        knob=scaled(view, "rollout.sync_bucket_mib", 4),
    )


def environments_are_slow(view: RunView) -> Symptom | None:
    waits = view.window("env/wait_frac")
    if waits is None or waits.median < MAX_ENV_FRAC or share_of_step(view, "time/rollout_s") < MIN_ROLLOUT_FRAC:
        return None
    is_sync = view.option("trainer.schedule") in (None, "sync")
    remedy = (
        " trainer.schedule=async learns meanwhile; it needs a pool rollout in cluster.placement, and no "
        "algorithm.filter_groups."
    )
    return Symptom(
        text=f"Episodes spend {percent(waits.median)} of their time waiting for their environment "
        f"({median_of(waits)}). More prompts at once keep the engine busy: raise "
        f"{named(view, 'data.train_batch_size')}, and environment.max_processes if episodes wait for a process."
        f"{remedy if is_sync else ''}",
        metric=waits.metric,
        step=waits.last_step,
    )


def steps_are_uneven(view: RunView) -> Symptom | None:
    steps, total = view.curve(STEP_S), step_seconds(view)
    if not total:
        return None
    limit = SLOW_STEP_FACTOR * steps.median
    slow = [(value, step) for step, value in zip(steps.steps[1:], steps.values[1:], strict=True) if value > limit]
    lost = sum(value for value, _ in slow)
    if lost < MAX_SLOW_FRAC * total:
        return None
    longest, step = max(slow)
    return Symptom(
        text=f"{len(slow)} steps took more than {SLOW_STEP_FACTOR:g} times the median of {STEP_S} "
        f"({seconds(steps.median)}), together {percent(lost / total)} of the run; the longest is step {step} with "
        f"{seconds(longest)}{_longest_stage(view, step)}. trainer.profile_steps=[N] records a step in detail.",
        metric=STEP_S,
        step=step,
    )


def _longest_stage(view: RunView, step: int) -> str:
    """Return the stage of a step that took longer than its median by most, in words; empty without stages."""
    extra = {
        metric: (points[step] - view.curve(metric).median, points[step])
        for metric, points in view.series.items()
        if metric in stages((metric,)) and math.isfinite(points.get(step, math.nan))
    }
    if not extra:
        return ""
    metric = max(extra, key=lambda name: extra[name][0])
    return f", of which {metric} is {seconds(extra[metric][1])}"


SPEED: tuple[Rule, ...] = (
    Rule(
        level=TUNING,
        title="A rank is slow",
        sees="seconds of each rank and stage in ledger.jsonl",
        threshold=f"the slowest rank needs {percent(MAX_RANK_FRAC)} of the run longer than the mean of the others",
        change=("rollout.dealing", "trainer.balance_by", "cluster.threads_per_worker"),
        find=a_rank_is_slow,
    ),
    Rule(
        level=TUNING,
        title="Scoring delays the step",
        sees="time/reward_wait_s over time/step_s",
        threshold=f"{percent(MAX_REWARD_FRAC)} or more",
        change=("reward.num_workers", "reward.max_concurrency", "reward.timeout_s"),
        find=scoring_is_slow,
    ),
    Rule(
        level=TUNING,
        title="Environments delay the rollout",
        sees="env/wait_frac, if the rollout is half of a step or more",
        threshold=f"{percent(MAX_ENV_FRAC)} or more",
        change=("trainer.schedule", "data.train_batch_size", "environment.max_processes"),
        find=environments_are_slow,
    ),
    Rule(
        level=TUNING,
        title="Tokens are spread unevenly",
        sees="balance/imbalance",
        threshold=f"{MAX_IMBALANCE:g} or more",
        change=("data.train_batch_size", "actor.mini_batch_size", "actor.sequence_parallel_size"),
        find=tokens_are_uneven,
    ),
    Rule(
        level=TUNING,
        title="The weight sync is slow",
        sees="time/sync_s over time/step_s",
        threshold=f"{percent(MAX_SYNC_FRAC)} or more",
        change=("rollout.sync_bucket_mib", "rollout.lora"),
        find=sync_takes_time,
    ),
    Rule(
        level=TUNING,
        title="Checkpoints delay the run",
        sees="checkpoint/wait_s over the time of the run",
        threshold=f"{percent(MAX_CHECKPOINT_FRAC)} or more",
        change=("trainer.async_save", "trainer.save_freq", "trainer.output_dir"),
        find=checkpoints_take_time,
    ),
    Rule(
        level=TUNING,
        title="Validation takes much of the time",
        sees="time/validation_s over the time of the run",
        threshold=f"{percent(MAX_VALIDATION_FRAC)} or more",
        change=("trainer.test_freq", "data.val_max_samples", "rollout.val.n"),
        find=validation_takes_time,
    ),
    Rule(
        level=TUNING,
        title="Some steps are much slower",
        sees="time/step_s of steps after the first",
        threshold=f"{percent(MAX_SLOW_FRAC)} of the run in steps above {SLOW_STEP_FACTOR:g} medians",
        change=("trainer.profile_steps",),
        find=steps_are_uneven,
    ),
)
