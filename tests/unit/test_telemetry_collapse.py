"""A run that collapses is warned of once, and one that learns, is learnt out or only varies is not."""

from __future__ import annotations

import logging
import math
import random

import pytest

from verl_like.telemetry.collapse import CollapseWatch

Steps = list[tuple[float, float]]  # score and entropy


def warnings_of(steps: Steps, caplog: pytest.LogCaptureFixture, watch: CollapseWatch | None = None) -> list[str]:
    watch, before = watch or CollapseWatch(), len(caplog.records)
    with caplog.at_level(logging.WARNING):
        for step, (score, entropy) in enumerate(steps, 1):
            watch.add(step, metrics(score, entropy))
    return [record.getMessage() for record in caplog.records[before:]]


def metrics(score: float, entropy: float) -> dict[str, float]:
    return {
        "reward/score_mean": score,
        "reward/score_min": 0.0,
        "reward/score_max": 1.0,
        "rollout/entropy_mean": entropy,
    }


def noisy(values: list[float], spread: float = 0.03) -> list[float]:
    generator = random.Random(0)
    return [value + generator.gauss(0, spread) for value in values]


RISING = [0.2 + 0.6 * min(step / 60, 1) for step in range(100)]


def test_a_score_that_falls_back_is_reported_once_with_both_windows_and_a_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scores = noisy([*RISING, *[0.1] * 50])
    [message] = warnings_of([(score, 0.5) for score in scores], caplog)
    assert message.startswith("the score has collapsed: reward/score_mean is 0.")
    assert " to 1" in message and "trainer.resume=PATH" in message and "actor.optim.lr" in message


def test_a_score_that_only_falls_from_where_it_began_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    [message] = warnings_of([(score, 0.5) for score in noisy([0.6] * 30 + [0.0] * 30)], caplog)
    assert "the score has collapsed" in message


def test_entropy_that_vanishes_before_the_task_is_learnt_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    [message] = warnings_of([(0.4, 0.5 * math.exp(-step / 20)) for step in range(100)], caplog)
    assert message.startswith("the entropy has collapsed: rollout/entropy_mean is 0.0")
    assert "was 0.4 over steps 1 to 10, while the score is 0.4 and single responses got 1" in message


@pytest.mark.parametrize(
    "steps",
    [
        [(score, 0.5) for score in noisy(RISING)],
        [(score, 0.5) for score in noisy([0.3] * 300, 0.1)],
        [(score, 0.5) for score in noisy([0.5 + 0.1 * math.sin(step / 15) for step in range(300)])],
        [(min(0.3 + step / 100, 0.97), 0.5 * math.exp(-step / 20)) for step in range(100)],
        [(0.0, 0.5)] * 50,
        [(1.0, 0.0)] * 50,
        [(-3.0 + step / 50, 0.5) for step in range(100)],
    ],
    ids=["learns", "varies", "waves", "learns out", "no signal yet", "one answer", "negative scores"],
)
def test_a_run_that_does_not_collapse_is_left_alone(steps: Steps, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(steps, caplog) == []


def test_a_continued_run_remembers_its_values_and_does_not_repeat_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    before = noisy([*RISING, *[0.1] * 50])
    series = {name: {step: metrics(score, 0.5)[name] for step, score in enumerate(before, 1)} for name in metrics(0, 0)}
    watch = CollapseWatch()
    watch.restore(series)
    assert warnings_of([(0.1, 0.5)] * 20, caplog, watch) == []
    watch = CollapseWatch()
    watch.restore({name: {step: value for step, value in of.items() if step <= 100} for name, of in series.items()})
    assert len(warnings_of([(0.1, 0.5)] * 20, caplog, watch)) == 1


def test_steps_without_a_finite_score_or_entropy_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    watch = CollapseWatch()
    scores = noisy([*RISING, *[0.1] * 50])
    with caplog.at_level(logging.WARNING):
        for step, score in enumerate(scores, 1):
            watch.add(step, metrics(score, 0.5) if step % 3 else metrics(math.nan, 0.5))
        watch.add(151, {"reward/score_mean": 0.1})
    assert [record.getMessage()[:23] for record in caplog.records] == ["the score has collapsed"]


def test_a_collapse_is_present_until_the_score_has_recovered() -> None:
    watch = CollapseWatch()
    fallen = [*RISING, *[0.1] * 50]
    series = {name: {step: metrics(s, 0.5)[name] for step, s in enumerate(fallen, 1)} for name in metrics(0, 0)}
    watch.restore(series)
    assert list(watch.present) == ["reward/score_mean"]
    for step in range(151, 171):
        watch.add(step, metrics(0.8, 0.5))
    assert watch.present == {}
