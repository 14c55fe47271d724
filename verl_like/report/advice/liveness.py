"""Rules on runs that hang, or have ended early."""

from __future__ import annotations

from verl_like.report.advice.curve import Curve
from verl_like.report.advice.rule import ALARM, Rule, Symptom
from verl_like.report.advice.run_view import RUNNING, STEP_S, STOPPED, RunView
from verl_like.report.advice.wording import changed, named, seconds

SLOW_FACTOR = 6.0  # of the median step; lengths, validations and checkpoints vary a step by less
MIN_SLOW_S = 1800.0  # a shorter pause may be a download, a large checkpoint or a full disk
MAX_VERDICT = 400  # characters of the watchdog's sentence

RESTARTS = "trainer.max_restarts"


def hangs(view: RunView) -> Symptom | None:
    if not view.num_stalls:
        return None
    verdict = " ".join(view.first_stall.split())
    shown = f"{verdict[:MAX_VERDICT].rstrip()}..." if len(verdict) > MAX_VERDICT else verdict
    count = "a process that hangs" if view.num_stalls == 1 else f"processes that hang {view.num_stalls} times"
    return Symptom(
        text=f"The watchdog reported {count}{f': {shown}' if shown else '.'} The folder stalls/ has the stacks of all "
        f"processes. If the process was only slow, raise {named(view, 'trainer.stall_after_s')}; "
        f"{named(view, 'trainer.on_stall')} can be restart, with {named(view, RESTARTS)}.",
        # Without restarts, the other option is refused.
        knob=changed(view, "trainer.on_stall", "restart") if view.option(RESTARTS) else f"{RESTARTS}=3",
    )


def is_stuck(view: RunView) -> Symptom | None:
    """Find a running run whose newest step, finished or not, takes far longer than its others."""
    steps = view.curve(STEP_S)
    if view.status != RUNNING or not steps:
        return None
    validation = view.curve("time/validation_s")
    usual = steps.median + (validation.median if validation else 0.0)
    limit = max(SLOW_FACTOR * usual, MIN_SLOW_S)
    silent_s = view.silent_s or 0.0
    if max(silent_s, steps.values[-1]) < limit:
        return None
    if silent_s >= limit:
        found = f"has reported nothing for {seconds(silent_s)} since step {steps.last_step}"
    else:
        found = f"needed {seconds(steps.values[-1])} for step {steps.last_step}"
    return Symptom(
        text=f"The run {found}; the median of {STEP_S} is {seconds(steps.median)}. `kill -USR1` of its processes "
        f"writes their stacks into logs/. A stage ends with an error after {named(view, 'trainer.stage_timeout_s')}; "
        f"with {named(view, RESTARTS)} above 0, the run then continues from its newest checkpoint.",
        metric=STEP_S,
        step=steps.last_step,
        knob=None if view.option(RESTARTS) else f"{RESTARTS}=3",
    )


def ended_early(view: RunView) -> Symptom | None:
    if view.status != STOPPED:
        return None
    steps = view.curve(STEP_S)
    of = f" of {view.total_steps}" if view.total_steps else ""
    where = f"after step {steps.last_step}{of}" if steps else "before its first step was complete"
    cause = "Its last messages and logs/ show the cause."
    if view.num_failed_samples:
        cause += (
            f" samples/reward_failures.jsonl has {view.num_failed_samples} samples without a score; more than "
            f"{named(view, 'reward.max_failure_frac')} of a step or of a validation end a run."
        )
    return Symptom(
        text=f"The run ended {where}, by an error or because its processes were killed. {cause} The same command "
        f"continues from the newest checkpoint; {named(view, 'trainer.save_freq')} decides how often one is written. "
        f"If a process was lost, {RESTARTS}=3 continues without you.",
        step=_last(steps),
        knob=None if view.option(RESTARTS) else f"{RESTARTS}=3",
    )


def _last(curve: Curve) -> int | None:
    return curve.last_step if curve else None


LIVENESS: tuple[Rule, ...] = (
    Rule(
        level=ALARM,
        title="A process hangs",
        sees="reports of the watchdog in stalls/",
        threshold="any",
        change=("trainer.on_stall", "trainer.stall_after_s", RESTARTS),
        find=hangs,
    ),
    Rule(
        level=ALARM,
        title="The run is stuck in a step",
        sees=f"time since a running run's newest metrics, and {STEP_S} of its newest step",
        threshold=f"{SLOW_FACTOR:g} times the median step, and at least {seconds(MIN_SLOW_S)}",
        change=("trainer.stage_timeout_s", RESTARTS),
        find=is_stuck,
    ),
    Rule(
        level=ALARM,
        title="The run ended early",
        sees="a run that stopped before its last step and was not interrupted by a user",
        threshold="any",
        change=(RESTARTS, "trainer.save_freq", "reward.max_failure_frac"),
        find=ended_early,
    ),
)
