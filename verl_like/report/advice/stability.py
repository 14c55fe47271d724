"""Rules on updates and weights that go wrong: numbers that are not finite, explosions, a gap to the engine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import quantiles

from verl_like.report.advice.asynchrony import fresher
from verl_like.report.advice.curve import WINDOW, Curve
from verl_like.report.advice.rule import ALARM, TUNING, Rule, Symptom
from verl_like.report.advice.run_view import RunView
from verl_like.report.advice.wording import LOWER_LR, LR, changed, median_of, named, named_above, percent, scaled

# Their values come from the model; those of other metrics may be undefined in a step.
OF_THE_MODEL = ("actor/", "critic/", "sft/", "dpo/", "rm/", "rollout/entropy", "rollout/log_prob_diff")
UNDEFINED_AT_TIMES = ("critic/explained_variance",)

GRAD_FACTOR = 10.0  # times an ordinary norm of the run; a norm varies about threefold from step to step
GRAD_WINDOW, MIN_GRAD_FRAC = 20, 0.25  # a quarter of the newest steps: one spike is clipped and does no harm
MAX_GAP = 0.1  # nats per token, ten times what rounding to bfloat16 causes
STALE_FACTOR = 3.0  # higher limits if engines generate ahead, with other weights on purpose
GAP_FACTOR, MIN_GAP_JUMP = 10.0, 0.01  # a jump, up to at least the gap of bfloat16
MAX_PPO_KL = 0.1  # nats per token between two policies of one step; a healthy run has 0.01 or less
MAX_CLIP_FRAC = 0.3  # of tokens; sequence-level losses clip 0.15, token-level losses 0.01

GAP = "rollout/log_prob_diff_mean"


def numbers_are_not_finite(view: RunView) -> Symptom | None:
    """Find skipped updates, or else metrics of the model that are not finite; one is enough."""
    for metric in ("actor/skipped_updates", "critic/skipped_updates", "rm/skipped_updates"):
        skipped = view.curve(metric)
        if skipped and skipped.total > 0:
            first = next(step for step, count in zip(skipped.steps, skipped.values, strict=True) if count)
            count = "1 update" if skipped.total == 1 else f"{skipped.total:.0f} updates"
            found = f"{metric} counts {count} without a finite gradient, the first in step {first}."
            return _not_finite(view, metric, first, f"{found} Such updates are skipped.")
    broken = dict(_not_finite_steps(view))
    if not broken:
        return None
    metric = min(broken, key=lambda name: broken[name][0])
    steps = broken[metric]
    where = f"1 step, step {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps, the first is step {steps[0]}"
    return _not_finite(view, metric, steps[0], f"{metric} is not a finite number in {where}.")


def _not_finite_steps(view: RunView) -> Iterator[tuple[str, list[int]]]:
    for metric, points in view.series.items():
        if metric.startswith(OF_THE_MODEL) and metric not in UNDEFINED_AT_TIMES:
            steps = sorted(step for step, value in points.items() if not math.isfinite(value))
            if steps:
                yield metric, steps


def _not_finite(view: RunView, metric: str, step: int, found: str) -> Symptom:
    learner = "critic" if metric.startswith("critic/") else "actor"
    generates = view.curve("rollout/response_tokens_mean")  # other runs write no snapshots
    snapshot = " The step's snapshot is kept in `capsules/kept` for `verl-like replay`." if generates else ""
    return Symptom(
        text=f"{found}{snapshot} Lower "
        f"{named(view, f'{learner}.optim.lr')} or {named(view, f'{learner}.optim.max_grad_norm')}, and continue from "
        f"an earlier checkpoint (trainer.resume=PATH).",
        metric=metric,
        step=step,
        knob=scaled(view, f"{learner}.optim.lr", LOWER_LR),
    )


def gradients_explode(view: RunView) -> Symptom | None:
    for metric, learner in (("actor/grad_norm", "actor"), ("critic/grad_norm", "critic"), ("rm/grad_norm", "actor")):
        norms = view.curve(metric)
        now, before = norms.newest(GRAD_WINDOW), norms.slice(None, max(len(norms) - GRAD_WINDOW, 0))
        positive = [norm for norm in before.values if norm > 0]  # a step without a signal has a gradient of 0
        if len(positive) < WINDOW or view.window(metric) is None:
            continue
        usual = quantiles(positive)[0]  # the lower quartile: an explosion may have lasted for most of the run
        option = f"{learner}.optim.max_grad_norm"
        limit = GRAD_FACTOR * max(usual, view.option(option) or 1.0)
        above = [step for step, norm in zip(now.steps, now.values, strict=True) if norm > limit]
        if len(above) >= MIN_GRAD_FRAC * len(now):
            return Symptom(
                text=f"{metric} was above {limit:.3g} in {len(above)} of {len(now)} steps ({now.span}, at most "
                f"{max(now.values):.3g}); before, an ordinary norm was {usual:.3g}. Gradients are clipped at "
                f"{named(view, option)}, so these updates are large and noisy. Lower "
                f"{named(view, f'{learner}.optim.lr')}; a KL term (actor.kl_loss_coef=0.001) keeps a "
                f"policy close to its start.",
                metric=metric,
                step=above[0],
                knob=scaled(view, f"{learner}.optim.lr", LOWER_LR),
            )
    return None


def engine_and_trainer_differ(view: RunView) -> Symptom | None:
    """Find a gap between the log-probs of engine and trainer that is too large for rounding, or that has jumped."""
    now, gaps = view.window(GAP), view.curve(GAP)
    if now is None:
        return None
    is_stale = _is_stale(view)
    limit = MAX_GAP * _stale_factor(view)
    before = gaps.slice(None, max(len(gaps) - WINDOW, 0))
    usual = before.median if len(before) >= WINDOW else None
    has_jumped = usual is not None and not is_stale and now.median > max(GAP_FACTOR * usual, MIN_GAP_JUMP)
    if now.median <= limit and not has_jumped:
        return None
    was = f", and was {usual:.2g} before" if usual is not None and now.median > GAP_FACTOR * usual else ""
    found = (
        f"The log-probs of engine and trainer differ: {GAP} is {now.median:.2g} nats per token over {now.span}{was}."
    )
    if is_stale:
        remedy = f"Responses are too old for the correction: lower {named(view, 'trainer.max_staleness')}"
    else:
        remedy = (
            "Rounding to bfloat16 causes about 0.01; more means that the weights differ. "
            f"rollout.sync_checksum=true compares the weights of all ranks, {named(view, 'rollout.dtype')} float32 "
            "excludes rounding"
        )
    return Symptom(
        text=f"{found} {remedy}; algorithm.rollout_correction.mode=mask leaves out the tokens that differ most.",
        metric=GAP,
        step=_first_above(gaps, limit if usual is None else max(GAP_FACTOR * usual, MIN_GAP_JUMP)) or now.last_step,
        knob=fresher(view) if is_stale else changed(view, "rollout.sync_checksum", "true"),
    )


def _is_stale(view: RunView) -> bool:
    """Return whether engines generate ahead, so that they have other weights than the trainer."""
    return view.window("rollout/staleness_max") is not None


def _stale_factor(view: RunView) -> float:
    return STALE_FACTOR if _is_stale(view) else 1.0


def _first_above(curve: Curve, limit: float) -> int | None:
    """Return the first step above the limit."""
    return next((step for step, value in zip(curve.steps, curve.values, strict=True) if value > limit), None)


def policy_jumps(view: RunView) -> Symptom | None:
    now = view.window("actor/ppo_kl")
    if now is None or now.median <= MAX_PPO_KL * _stale_factor(view):
        return None
    return Symptom(
        text=f"The updates of one step move the policy far from the one that generated ({median_of(now)} nats per "
        f"token; up to 0.01 is usual). Lower {named_above(view, {LR: 0, 'actor.epochs': 1})}, or make fewer updates of "
        f"a step: actor.mini_batch_size up to data.train_batch_size.",
        metric=now.metric,
        step=now.last_step,
        knob=scaled(view, LR, LOWER_LR),
    )


def much_is_clipped(view: RunView) -> Symptom | None:
    now = view.window("actor/clip_frac")
    if now is None or now.median <= MAX_CLIP_FRAC:
        return None
    return Symptom(
        text=f"{percent(now.median)} of tokens are clipped ({median_of(now)}) and teach nothing. Lower "
        f"{named_above(view, {LR: 0, 'actor.epochs': 1})}, or raise {named(view, 'actor.clip_ratio_high')}.",
        metric=now.metric,
        step=now.last_step,
        knob=scaled(view, LR, LOWER_LR),
    )


NOT_FINITE = Rule(
    level=ALARM,
    title="Numbers are not finite",
    sees="skipped_updates of actor, critic or reward model, and metrics of the model",
    threshold="one update, or one number that is not finite",
    change=(LR, "actor.optim.max_grad_norm", "trainer.resume"),
    find=numbers_are_not_finite,
)
STABILITY: tuple[Rule, ...] = (
    Rule(
        level=ALARM,
        title="Engine and trainer differ",
        sees=GAP,
        threshold=f"above {MAX_GAP:g} nats ({MAX_GAP * STALE_FACTOR:g} if engines generate ahead), or "
        f"{GAP_FACTOR:g} times its median before and above {MIN_GAP_JUMP:g}",
        change=("rollout.sync_checksum", "rollout.dtype", "algorithm.rollout_correction.mode"),
        find=engine_and_trainer_differ,
    ),
    Rule(
        level=ALARM,
        title="Gradients explode",
        sees="grad_norm of actor, critic or reward model",
        threshold=f"in {percent(MIN_GRAD_FRAC)} of the newest {GRAD_WINDOW} steps {GRAD_FACTOR:g} times both the lower "
        "quartile before and max_grad_norm",
        change=(LR, "actor.kl_loss_coef", "actor.optim.max_grad_norm"),
        find=gradients_explode,
    ),
    Rule(
        level=ALARM,
        title="The policy jumps",
        sees="actor/ppo_kl",
        threshold=f"above {MAX_PPO_KL:g} nats per token ({MAX_PPO_KL * STALE_FACTOR:g} if engines generate ahead)",
        change=(LR, "actor.epochs", "actor.mini_batch_size"),
        find=policy_jumps,
    ),
)
CLIPPING = Rule(
    level=TUNING,
    title="Many tokens are clipped",
    sees="actor/clip_frac",
    threshold=f"above {percent(MAX_CLIP_FRAC)} of tokens",
    change=(LR, "actor.epochs", "actor.clip_ratio_high"),
    find=much_is_clipped,
)
