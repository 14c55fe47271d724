"""Rules on samples and episodes that fail, and on tool calls that nobody can read."""

from __future__ import annotations

from verl_like.report.advice.curve import Curve
from verl_like.report.advice.rule import ALARM, TUNING, Rule, Symptom
from verl_like.report.advice.run_view import RunView
from verl_like.report.advice.wording import changed, named, percent, scaled

MAX_FAILED_FRAC = 0.05  # of samples; the others of a group hardly notice fewer failures
MAX_MALFORMED_FRAC = 0.2  # of tool calls; a policy that has just begun makes fewer than that many mistakes
MIN_CALLS = 100  # tool calls of a window; fewer say little

FAILED, ENV_FAILURES = "reward/num_failed", "env/failures"
KINDS = {"timeout": "timeouts", "crash": "crashes", "memory": "out of memory", "error": "errors"}


def samples_fail(view: RunView) -> Symptom | None:
    failed = view.window(FAILED)
    frac = _worse_frac(view, FAILED)
    if failed is None or frac - _worse_frac(view, ENV_FAILURES) < MAX_FAILED_FRAC:
        return None
    counts = {kind: view.curve(f"reward/num_{kind}").total for kind in KINDS}
    worst = max(counts, key=lambda kind: counts[kind]) if any(counts.values()) else "error"
    abort = f"{named(view, 'reward.on_failure')} can be abort, which ends a run at its first failure"
    remedies = {
        "timeout": f"raise {named(view, 'reward.timeout_s')}, or reward.num_workers if scorers are busy",
        "memory": f"raise {named(view, 'reward.max_memory_gib')}",
        "crash": f"correct the reward function; {abort}",
        "error": f"correct the reward function; {abort}",
    }
    knobs = {"timeout": scaled(view, "reward.timeout_s", 3), "memory": scaled(view, "reward.max_memory_gib", 2)}
    shown = f", most of them {KINDS[worst]} (reward/num_{worst})" if counts[worst] else ""
    return Symptom(
        text=f"{percent(frac)} of samples have no score ({FAILED}){shown}. samples/reward_failures.jsonl has each in "
        f"full: {remedies[worst]}.",
        metric=FAILED,
        step=_first_positive(view.curve(FAILED)),
        knob=knobs[worst] if worst in knobs else changed(view, "reward.on_failure", "abort"),
    )


def environments_fail(view: RunView) -> Symptom | None:
    frac = _worse_frac(view, ENV_FAILURES)
    if frac < MAX_FAILED_FRAC:
        return None
    return Symptom(
        text=f"{percent(frac)} of episodes ended because their environment failed ({ENV_FAILURES}). samples/ names the "
        f"status of each; to find the cause, play one (`verl-like play --by-hand`). If they are timeouts, raise "
        f"{named(view, 'environment.call_timeout_s')} or {named(view, 'environment.episode_timeout_s')}; if they "
        f"ran out of memory, {named(view, 'environment.max_memory_gib')}.",
        metric=ENV_FAILURES,
        step=_first_positive(view.curve(ENV_FAILURES)),
        knob=scaled(view, "environment.call_timeout_s", 2),
    )


def _worse_frac(view: RunView, metric: str) -> float:
    """Return the share of the responses that a metric counts: of the whole run or the newest steps, the higher one."""
    curves = [view.curve(metric), view.window(metric)]
    rows = [(curve.total, view.num_rows(curve)) for curve in curves if curve]
    enough = view.window(metric) is not None
    return max((count / total for count, total in rows if total > 0), default=0.0) if enough else 0.0


def _first_positive(curve: Curve) -> int | None:
    return next((step for step, value in zip(curve.steps, curve.values, strict=True) if value > 0), None)


def grader_fails(view: RunView) -> Symptom | None:
    unreadable = view.curve("reward/unreadable")
    if not unreadable or unreadable.total == 0:
        return None
    count = "1 response" if unreadable.total == 1 else f"{unreadable.total:.0f} responses"
    return Symptom(
        text=f"{count} made a built-in grader fail ({unreadable.metric}) and got the score 0. This "
        f"is a bug of the grader, please report it; until then, {named(view, 'reward.function')} can be another one.",
        metric=unreadable.metric,
        step=_first_positive(unreadable),
    )


def calls_are_malformed(view: RunView) -> Symptom | None:
    malformed, calls = view.window("env/malformed_calls"), view.window("env/tool_calls")
    if malformed is None or calls is None:
        return None
    num_calls = calls.mean * view.num_rows(calls)
    if num_calls < MIN_CALLS or malformed.total < MAX_MALFORMED_FRAC * num_calls:
        return None
    return Symptom(
        text=f"{malformed.total:.0f} of about {num_calls:.0f} tool calls could not be read ({malformed.metric}, "
        f"{malformed.span}). Read the calls in samples/, and compare them with the format that "
        f"{named(view, 'environment.tool_parser')} expects; responses that are cut off need a larger "
        f"{named(view, 'environment.max_turn_tokens')}.",
        metric=malformed.metric,
        step=malformed.last_step,
        knob=changed(view, "environment.tool_parser", "hermes"),
    )


FAILURES: tuple[Rule, ...] = (
    Rule(
        level=ALARM,
        title="Environments fail",
        sees=f"{ENV_FAILURES} over the episodes, of the newest 10 steps or of the run",
        threshold=f"{percent(MAX_FAILED_FRAC)} or more",
        change=("environment.call_timeout_s", "environment.episode_timeout_s", "environment.max_memory_gib"),
        find=environments_fail,
    ),
    Rule(
        level=ALARM,
        title="Samples get no score",
        sees=f"{FAILED}, except failed environments, over the responses of the newest 10 steps or of the run",
        threshold=f"{percent(MAX_FAILED_FRAC)} or more",
        change=("reward.timeout_s", "reward.max_memory_gib", "reward.num_workers", "reward.on_failure"),
        find=samples_fail,
    ),
)
OF_GRADERS: tuple[Rule, ...] = (
    Rule(
        level=TUNING,
        title="A grader fails",
        sees="reward/unreadable",
        threshold="any",
        change=("reward.function",),
        find=grader_fails,
    ),
    Rule(
        level=TUNING,
        title="Tool calls cannot be read",
        sees=f"env/malformed_calls over env/tool_calls, of at least {MIN_CALLS} calls",
        threshold=f"{percent(MAX_MALFORMED_FRAC)} or more",
        change=("environment.tool_parser", "environment.max_turn_tokens"),
        find=calls_are_malformed,
    ),
)
