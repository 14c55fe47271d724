"""Rules on schedules that generate ahead, and on responses that are too old to learn from."""

from __future__ import annotations

from verl_like.report.advice.curve import Curve
from verl_like.report.advice.rule import ALARM, TUNING, Rule, Symptom
from verl_like.report.advice.run_view import STEP_S, RunView
from verl_like.report.advice.time_shares import share_of_step
from verl_like.report.advice.wording import changed, named, percent

MIN_ESS_FRAC, GOOD_ESS_FRAC = 0.5, 0.8  # of all tokens: half of a batch counts for nothing
MIN_KEPT_FRAC, GOOD_KEPT_FRAC = 0.5, 0.9  # IcePop masks about 0.002, a strict rejection a few percent
OLD_FRAC = 0.9  # of trainer.max_staleness
MIN_STALENESS = 2.0  # an age of 1 is what generating ahead means
MAX_TRAINER_WAIT = 0.5  # of a step: the trainer is idle for as long as it works
MIN_TRAINER_WAIT = 0.1  # of a step; below, the engines are ahead

ESS, KEPT, STALENESS = "actor/correction_ess_frac", "actor/correction_kept_frac", "rollout/staleness_mean"
MAX_STALENESS = "trainer.max_staleness"


def correction_drops_most(view: RunView) -> Symptom | None:
    return _lost(view, {ESS: MIN_ESS_FRAC, KEPT: MIN_KEPT_FRAC})


def correction_drops_some(view: RunView) -> Symptom | None:
    return _lost(view, {ESS: GOOD_ESS_FRAC, KEPT: GOOD_KEPT_FRAC})


def _lost(view: RunView, limits: dict[str, float]) -> Symptom | None:
    """Find a metric of the rollout correction that is below its limit."""
    windows = {metric: view.window(metric) for metric in limits}
    low: list[Curve] = [curve for metric, curve in windows.items() if curve and curve.median < limits[metric]]
    if not low:
        return None
    now, age = min(low, key=lambda curve: curve.median), view.window(STALENESS)
    weighs = "a batch weighs only as much as" if now.metric == ESS else "a batch keeps only"
    if age is not None and age.median > 0:
        remedy = f"Responses are {age.median:.1f} updates old ({STALENESS}): lower {named(view, MAX_STALENESS)}, or "
        knob = fresher(view)
    else:
        remedy = f"Engine and trainer differ: set rollout.sync_checksum=true or {named(view, 'rollout.dtype')}, or "
        knob = changed(view, "rollout.sync_checksum", "true")
    rejection = "algorithm.rollout_correction.rejection"
    return Symptom(
        text=f"After the rollout correction, {weighs} {percent(now.median)} of its tokens ({now.metric}, {now.span}). "
        f"{remedy}lower {named(view, 'actor.optim.lr')}, which makes each update smaller. "
        f"{named(view, rejection)} and {named(view, 'algorithm.rollout_correction.mode')} decide which are dropped.",
        metric=now.metric,
        step=now.last_step,
        knob=knob,
    )


def fresher(view: RunView) -> str | None:
    """Return the override that halves the largest age; None if ``trainer.pipeline_depth`` needs more than that."""
    age, depth = view.option(MAX_STALENESS) or 0, view.option("trainer.pipeline_depth") or 0
    lower = max(round(age / 2), 1)
    return f"{MAX_STALENESS}={lower}" if lower < age and depth <= lower + 1 else None


def responses_are_old(view: RunView) -> Symptom | None:
    age, most = view.window(STALENESS), view.option(MAX_STALENESS)
    if age is None or not most or age.median < max(OLD_FRAC * most, MIN_STALENESS):
        return None
    waited, whole = view.window("time/rollout_s"), view.window(STEP_S)
    if waited is None or whole is None or waited.total > MIN_TRAINER_WAIT * whole.total:
        return None
    return Symptom(
        text=f"Responses are almost as old as {named(view, MAX_STALENESS)} allows ({STALENESS} is {age.median:.1f} "
        f"over {age.span}): engines generate faster than the trainer learns. Move workers to the trainer "
        f"(cluster.placement), or lower {MAX_STALENESS}, which costs no time here.",
        metric=STALENESS,
        step=age.last_step,
        knob=fresher(view),
    )


def trainer_waits(view: RunView) -> Symptom | None:
    metric = "time/rollout_s"
    share = share_of_step(view, metric)
    if view.window(STALENESS) is None or share < MAX_TRAINER_WAIT:
        return None
    return Symptom(
        text=f"The trainer waits for groups for {percent(share)} of a step ({metric}). Move workers to the engines "
        f"(cluster.placement, or `verl-like scale` in a run), or let them generate further ahead: raise "
        f"{named(view, MAX_STALENESS)}.",
        metric=metric,
        step=view.curve(metric).last_step,
        knob=f"{MAX_STALENESS}={view.option(MAX_STALENESS) + 1}" if view.config is not None else None,
    )


DROPPED = Rule(
    level=ALARM,
    title="Most responses are too far off policy",
    sees=f"{ESS} and {KEPT}",
    threshold=f"below {percent(MIN_ESS_FRAC)} or {percent(MIN_KEPT_FRAC)} of tokens",
    change=(MAX_STALENESS, "rollout.sync_checksum", "actor.optim.lr", "algorithm.rollout_correction.rejection"),
    find=correction_drops_most,
)
ASYNCHRONY: tuple[Rule, ...] = (
    Rule(
        level=TUNING,
        title="The rollout correction drops tokens",
        sees=f"{ESS} and {KEPT}",
        threshold=f"below {percent(GOOD_ESS_FRAC)} or {percent(GOOD_KEPT_FRAC)} of tokens",
        change=(MAX_STALENESS, "rollout.sync_checksum", "actor.optim.lr", "algorithm.rollout_correction.rejection"),
        find=correction_drops_some,
    ),
    Rule(
        level=TUNING,
        title="Responses are old",
        sees=STALENESS,
        threshold=f"{percent(OLD_FRAC)} of {MAX_STALENESS} and {MIN_STALENESS:g} updates, and no waits of the trainer",
        change=(MAX_STALENESS, "cluster.placement"),
        find=responses_are_old,
    ),
    Rule(
        level=TUNING,
        title="The trainer waits for responses",
        sees="time/rollout_s over time/step_s, of schedules that generate ahead",
        threshold=f"{percent(MAX_TRAINER_WAIT)} or more",
        change=("cluster.placement", MAX_STALENESS),
        find=trainer_waits,
    ),
)
