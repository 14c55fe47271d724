"""Rules on runs whose score, entropy, divergence or validation goes the wrong way."""

from __future__ import annotations

from itertools import pairwise
from statistics import median_low

from verl_like.report.advice.curve import WINDOW, Curve
from verl_like.report.advice.rule import ALARM, TUNING, Rule, Symptom
from verl_like.report.advice.run_view import RunView
from verl_like.report.advice.score import growth_without_gain, score_range
from verl_like.report.advice.wording import LOWER_LR, LR, median_of, named, named_above, scaled
from verl_like.telemetry.collapse import ENTROPY, MAX_ENTROPY_FRAC, MIN_LOSS_FRAC, SCORE, CollapseWatch

ENTROPY_FACTOR, MIN_ENTROPY_RISE = 2.0, 1.0  # times, and nats per token: responses turn into noise
KL_FACTOR, MIN_KL = 2.0, 0.1  # times, and nats per token, ten times what a tuned KL term leaves
MIN_VAL_LOSS = 0.1  # of the way from the lowest to the highest score of any response
NEWEST_VALS = 2  # validations whose mean counts
LOSS_FACTOR = 1.2  # of the first window of a supervised run: it got worse than it began
VAL_LOSS_FACTOR = 1.1  # of the lowest held-out loss

KL_LOSS_COEF = "actor.kl_loss_coef"


def score_collapsed(view: RunView) -> Symptom | None:
    return _collapse(view, SCORE)


def entropy_collapsed(view: RunView) -> Symptom | None:
    return _collapse(view, ENTROPY)


def _collapse(view: RunView, metric: str) -> Symptom | None:
    watch = CollapseWatch()
    watch.restore(view.series)
    message, points = watch.present.get(metric), view.curve(metric)
    if message is None:
        return None
    knob = scaled(view, LR, LOWER_LR) if metric == SCORE else scaled(view, "actor.clip_ratio_high", 1.4)
    return Symptom(text=message[:1].upper() + message[1:], metric=metric, step=points.last_step, knob=knob)


def entropy_explodes(view: RunView) -> Symptom | None:
    entropies = view.curve(ENTROPY)
    growth = growth_without_gain(view, entropies, ENTROPY_FACTOR)
    if growth is None or growth.now.median - growth.before.median < MIN_ENTROPY_RISE:
        return None
    return Symptom(
        text=f"Responses turn into noise: {growth}. Lower {named_above(view, {'actor.entropy_coef': 0, LR: 0})}, or "
        f"add a KL term ({KL_LOSS_COEF}=0.001), and branch off an earlier checkpoint (trainer.resume=PATH).",
        metric=ENTROPY,
        step=growth.now.last_step,
        knob=scaled(view, "actor.entropy_coef", LOWER_LR) or scaled(view, LR, LOWER_LR),
    )


def kl_rises_without_gain(view: RunView) -> Symptom | None:
    for metric, option in (("actor/kl_loss", KL_LOSS_COEF), ("reward/kl_penalty_mean", "algorithm.kl_coef")):
        growth, factor = growth_without_gain(view, view.curve(metric), KL_FACTOR), _to_nats_per_token(view, metric)
        if growth is None or factor is None or growth.now.median * factor < MIN_KL:
            continue
        return Symptom(
            text=f"The KL to the reference rises faster than the score: {growth}. The policy drifts without a gain: "
            f"raise {named(view, option)}, lower {named(view, LR)}, or use an earlier checkpoint.",
            metric=metric,
            step=growth.now.last_step,
            knob=scaled(view, option, 3) or scaled(view, LR, LOWER_LR),
        )
    return None


def _to_nats_per_token(view: RunView, metric: str) -> float | None:
    """Return the factor from a metric of the KL to nats per token; None if it is unknown."""
    lengths = view.window("rollout/response_tokens_mean")
    if metric == "actor/kl_loss":
        aggregation = view.option("actor.loss_aggregation") or "token-mean"
        if aggregation != "seq-mean-token-sum":
            return 1.0 if aggregation.endswith("mean") else None
        weight = 1.0
    else:
        weights = view.window("reward/kl_coef")
        weight = weights.median if weights is not None else view.option("algorithm.kl_coef") or 0.0
    return 1.0 / (weight * lengths.median) if weight > 0 and lengths is not None and lengths.median > 0 else None


def validation_falls(view: RunView) -> Symptom | None:
    """Find a validation score that is below its start or its best value, while the training score is not."""
    found, scores = _val_curve(view), score_range(view)
    if found is None or scores is None or len(found) <= NEWEST_VALS:
        return None
    margin = MIN_VAL_LOSS * (scores[1] - scores[0])
    now, before = found.newest(NEWEST_VALS), found.slice(None, len(found) - NEWEST_VALS)
    best = max(range(len(before)), key=lambda at: before.values[at])
    # A best value is the luckiest of many, so the better one of its neighbours counts too.
    neighbours = [before.values[at] for at in (best - 1, best + 1) if 0 <= at < len(before)]
    peak = (before.values[best] + max(neighbours, default=before.values[best])) / 2
    if peak - max(now.values) <= max(margin, 2 * _noise(found)) or margin <= 0:
        return None
    kl_term = f"a KL term, {named(view, KL_LOSS_COEF)}"
    knob = scaled(view, LR, LOWER_LR)
    if _train_score(view, now.last_step) >= _train_score(view, before.steps[best]):
        why = (
            f"while {SCORE} did not fall: the policy fits the training prompts, or exploits the reward. Read the "
            f"responses with the highest scores in samples/. More data.train_files help, and {kl_term}"
        )
        knob = scaled(view, KL_LOSS_COEF, 3) or f"{KL_LOSS_COEF}=0.001"
    else:
        why = f"and {SCORE} fell too. Lower {named(view, LR)}, or add {kl_term}"
    return Symptom(
        text=f"{found.metric} fell from {before.values[best]:.3g} at step {before.steps[best]} to {now.values[-1]:.3g} "
        f"at step {now.last_step}, {why}. The checkpoint that is best by trainer.best_metric is kept.",
        metric=found.metric,
        step=before.steps[best],
        knob=knob,
    )


def _val_curve(view: RunView) -> Curve | None:
    """Return the validation score that selects checkpoints, or else the first mean over all rows."""
    names = [name for name in view.series if name.startswith("val/mean@")]
    if view.config is not None and view.config.val_metric in view.series:
        names.insert(0, view.config.val_metric)
    scores = [name for name in names if "@" in name]
    return view.curve(scores[0]) if scores else None


def _noise(curve: Curve) -> float:
    """Return the (lower) median change from one point to the next."""
    return median_low(abs(b - a) for a, b in pairwise(curve.values))


def _train_score(view: RunView, step: int) -> float:
    """Return the mean training score of the window that ends at a step, or of the first one."""
    scores = view.curve(SCORE)
    until = scores.at([at for at in scores.steps if at <= step]).newest(WINDOW)
    return (until or scores.first()).mean


def loss_rises(view: RunView) -> Symptom | None:
    for metric in ("sft/loss", "dpo/loss", "rm/loss"):
        losses, now = view.curve(metric), view.window(metric)
        if now is None or len(losses) < 2 * WINDOW or losses.first().median <= 0:
            continue
        first = losses.first()
        if now.median >= LOSS_FACTOR * first.median:
            return Symptom(
                text=f"The training loss is higher than at the start: {median_of(now)}, and was {first.median:.3g} "
                f"over {first.span}. Lower {named(view, LR)}, or raise {named(view, 'actor.optim.warmup_steps')}.",
                metric=metric,
                step=now.last_step,
                knob=scaled(view, LR, LOWER_LR),
            )
    return None


def held_out_loss_rises(view: RunView) -> Symptom | None:
    losses = view.curve("val/loss")
    if len(losses) <= NEWEST_VALS + 1:
        return None
    now = losses.newest(NEWEST_VALS)
    at = min(range(len(losses)), key=lambda index: losses.values[index])
    best = losses.values[at]
    if best <= 0 or min(now.values) < VAL_LOSS_FACTOR * best:
        return None
    return Symptom(
        text=f"The model overfits: val/loss is {now.values[-1]:.3g} at step {now.last_step}, and was {best:.3g} at "
        f"step {losses.steps[at]}. Stop there (trainer.total_training_steps), lower {named(view, LR)}, or use the "
        f"checkpoint that trainer.best_metric=val/loss keeps.",
        metric="val/loss",
        step=losses.steps[at],
        knob=f"trainer.total_training_steps={losses.steps[at]}" if losses.steps[at] else None,
    )


COLLAPSES: tuple[Rule, ...] = (
    Rule(
        level=ALARM,
        title="The score collapsed",
        sees=f"the mean {SCORE} of ten steps, against the best ten",
        threshold=f"lost {MIN_LOSS_FRAC:g} of its gain, a quarter of the range of scores, and 4 standard deviations",
        change=(LR, "actor.clip_ratio_high", KL_LOSS_COEF, "trainer.resume"),
        find=score_collapsed,
    ),
    Rule(
        level=ALARM,
        title="The validation falls",
        sees="the validation score of the two newest validations, against the best one",
        threshold=f"lower by {MIN_VAL_LOSS:g} of the range of scores, and by twice its usual change",
        change=(KL_LOSS_COEF, LR, "data.train_files", "trainer.best_metric"),
        find=validation_falls,
    ),
    Rule(
        level=ALARM,
        title="The entropy collapsed",
        sees=f"the mean {ENTROPY} of ten steps, against the first ten, before the task is learnt",
        threshold=f"{MAX_ENTROPY_FRAC:g} of the first, while the score does not rise",
        change=("rollout.temperature", "actor.clip_ratio_high", "actor.entropy_coef", LR),
        find=entropy_collapsed,
    ),
    Rule(
        level=ALARM,
        title="Responses turn into noise",
        sees=f"{ENTROPY}, against the first ten steps and those in the middle",
        threshold=f"{ENTROPY_FACTOR:g} times and {MIN_ENTROPY_RISE:g} nats more, while the score does not rise",
        change=("actor.entropy_coef", LR, KL_LOSS_COEF),
        find=entropy_explodes,
    ),
    Rule(
        level=ALARM,
        title="The KL rises faster than the score",
        sees="actor/kl_loss or reward/kl_penalty_mean, against the first ten steps and those in the middle",
        threshold=f"{KL_FACTOR:g} times, and at least {MIN_KL:g} nats per token, while the score does not rise",
        change=(KL_LOSS_COEF, "algorithm.kl_coef", LR),
        find=kl_rises_without_gain,
    ),
    Rule(
        level=ALARM,
        title="The loss rises",
        sees="sft/loss, dpo/loss or rm/loss, against the first ten steps",
        threshold=f"{LOSS_FACTOR:g} times as high",
        change=(LR, "actor.optim.warmup_steps"),
        find=loss_rises,
    ),
)
OVERFITTING = Rule(
    level=TUNING,
    title="The held-out loss rises",
    sees="val/loss of the two newest validations, against the lowest",
    threshold=f"{VAL_LOSS_FACTOR:g} times as high",
    change=("trainer.total_training_steps", LR, "trainer.best_metric"),
    find=held_out_loss_rises,
)
