"""Rules on what the policy can learn from: scores that differ, groups with a signal, a critic that helps."""

from __future__ import annotations

from verl_like.algorithms.advantages import ADVANTAGES
from verl_like.config.schema import Config
from verl_like.report.advice.curve import Curve
from verl_like.report.advice.rule import ALARM, TUNING, Rule, Symptom
from verl_like.report.advice.run_view import RunView
from verl_like.report.advice.score import is_learnt, score_range
from verl_like.report.advice.wording import LOWER_LR, LR, changed, median_of, named, number, percent, scaled
from verl_like.telemetry.collapse import HIGHEST, LOWEST, SCORE

MIN_SIGNAL_FRAC = 0.05  # below it, a batch of 64 prompts has three groups to learn from
MAX_SILENT_FRAC = 0.4  # of groups: as many rollouts are wasted, which other prompts would not be
MAX_BATCHES = 3.0  # that filter_groups draws for one: two thirds of the rollouts are dropped
MIN_CRITIC_STEPS = 30  # a fresh value head explains nothing at first
CRITIC_WARMUP = 20  # steps that are proposed

SIGNAL = "rollout/signal_frac"
SAMPLER, FILTER = "data.sampler", "algorithm.filter_groups"


def scores_are_constant(view: RunView) -> Symptom | None:
    """Find a window in which all responses got the same score, unless it is the best score after worse ones."""
    lowest, highest, found = view.window(LOWEST), view.window(HIGHEST), score_range(view)
    if lowest is None or highest is None or found is None or _learns_from_a_teacher(view.config):
        return None
    score = max(highest.values)
    if min(lowest.values) != score or (found[0] < score == found[1]):
        return None
    if score < found[1]:
        why = (
            f"Single responses got {number(found[1])} before, so the policy has lost what it could do: lower "
            f"{named(view, LR)}, and branch off an earlier checkpoint with trainer.resume=PATH."
        )
        knob = scaled(view, LR, LOWER_LR)
    else:
        why = (
            "Read the newest file in samples/. If the scores are wrong, try another reward.function on the stored "
            f"responses (`verl-like rescore`). If they are right, the prompts are too hard or too easy: "
            f"choose others in data.train_files, or by {SAMPLER}=curriculum."
        )
        knob = _curriculum(view)
    return Symptom(
        text=f"Every response got the score {number(score)} ({SCORE}) over {lowest.span}, so nothing is learnt. {why}",
        metric=SCORE,
        step=lowest.last_step,
        knob=knob,
    )


def _curriculum(view: RunView) -> str | None:
    """Return the override that draws prompts by their scores; None if the run selects its prompts already."""
    selects = view.option(SAMPLER) or view.option("data.train_weights")
    return None if selects else f"{SAMPLER}=curriculum"


def no_signal(view: RunView) -> Symptom | None:
    now, scores, found = _signal(view), view.window(SCORE), score_range(view)
    if now is None or now.median > MIN_SIGNAL_FRAC or view.option(FILTER) or scores_are_constant(view):
        return None
    is_low = scores is not None and found is not None and scores.mean < sum(found) / 2
    return _without_signal(view, now, [f"{'easier' if is_low else 'harder'} data.train_files"])


def little_signal(view: RunView) -> Symptom | None:
    now = _signal(view)
    if now is None or 1.0 - now.median < MAX_SILENT_FRAC or view.option(FILTER):
        return None
    return _without_signal(view, now, [])


def _signal(view: RunView) -> Curve | None:
    """Return the newest shares of groups with a signal, if the run compares siblings and has not learnt its task."""
    compares = view.config is not None and _compares_siblings(view.config) and not _learns_from_a_teacher(view.config)
    return view.window(SIGNAL) if compares and not is_learnt(view) else None


def _compares_siblings(config: Config) -> bool:
    """Return whether the estimator needs groups; a user's estimator is not loaded, so nothing is known of it."""
    name = config.algorithm.adv_estimator
    return name in ADVANTAGES and ADVANTAGES[name].compares_siblings


def _learns_from_a_teacher(config: Config | None) -> bool:
    return config is not None and config.algorithm.distill_coef > 0


def _without_signal(view: RunView, now: Curve, more: list[str]) -> Symptom:
    can_filter = view.option("trainer.schedule") == "sync"
    remedies = [_curriculum(view), changed(view, FILTER, "true") if can_filter else None]
    found = [remedy for remedy in remedies if remedy is not None]
    others = " or ".join([*more, f"a larger {named(view, 'rollout.n')}"])
    return Symptom(
        text=f"{percent(1.0 - now.median)} of groups carry no signal ({median_of(now)}): "
        f"{' or '.join(found) + f'. Or try {others}' if found else f'try {others}'}.",
        metric=SIGNAL,
        step=now.last_step,
        knob=found[0] if found else scaled(view, "rollout.n", 2),
    )


def many_batches_are_drawn(view: RunView) -> Symptom | None:
    now = view.window("rollout/num_batches")
    if now is None or now.median < MAX_BATCHES or is_learnt(view):
        return None
    return Symptom(
        text=f"{FILTER} draws several batches to fill one ({median_of(now)}; at most "
        f"{named(view, 'algorithm.max_num_gen_batches')}), and drops the other groups. {SAMPLER}=curriculum draws "
        f"prompts whose scores differ; with a larger {named(view, 'rollout.n')}, fewer groups have equal scores.",
        metric=now.metric,
        step=now.last_step,
        knob=_curriculum(view),
    )


def critic_explains_nothing(view: RunView) -> Symptom | None:
    now = view.window("critic/explained_variance")
    if now is None or len(view.curve(now.metric)) < MIN_CRITIC_STEPS or now.median > 0.0 or is_learnt(view):
        return None
    return Symptom(
        text=f"The critic predicts returns no better than a constant ({median_of(now)}; 1 is perfect), so it adds "
        f"noise to the advantages. Change {named(view, 'critic.optim.lr')}, or train it alone at first with "
        f"{named(view, 'critic.warmup_steps')}.",
        metric=now.metric,
        step=now.last_step,
        knob=None
        if (view.option("critic.warmup_steps") or 0) >= CRITIC_WARMUP
        else f"critic.warmup_steps={CRITIC_WARMUP}",
    )


CONSTANT_SCORES = Rule(
    level=ALARM,
    title="All scores are equal",
    sees=f"{LOWEST} and {HIGHEST}",
    threshold="equal in all of the newest 10 steps, unless it is the best score after worse ones",
    change=("reward.function", SAMPLER, "data.train_files", LR),
    find=scores_are_constant,
)
NO_SIGNAL = Rule(
    level=ALARM,
    title="Hardly any group carries a signal",
    sees=f"{SIGNAL} of estimators that compare siblings, before the task is learnt",
    threshold=f"at most {percent(MIN_SIGNAL_FRAC)} of groups",
    change=(SAMPLER, FILTER, "rollout.n", "data.train_files"),
    find=no_signal,
)
LITTLE_SIGNAL: tuple[Rule, ...] = (
    Rule(
        level=TUNING,
        title="Many groups carry no signal",
        sees=f"{SIGNAL} of estimators that compare siblings, before the task is learnt",
        threshold=f"{percent(MAX_SILENT_FRAC)} of groups or more without one",
        change=(SAMPLER, FILTER, "rollout.n"),
        find=little_signal,
    ),
    Rule(
        level=TUNING,
        title="Many batches are drawn for one",
        sees="rollout/num_batches",
        threshold=f"{MAX_BATCHES:g} or more",
        change=(SAMPLER, "rollout.n", "algorithm.max_num_gen_batches"),
        find=many_batches_are_drawn,
    ),
    Rule(
        level=TUNING,
        title="The critic explains nothing",
        sees="critic/explained_variance",
        threshold=f"0 or less, after {MIN_CRITIC_STEPS} steps",
        change=("critic.optim.lr", "critic.warmup_steps"),
        find=critic_explains_nothing,
    ),
)
