"""mean@n, pass@n and maj@n against numbers worked out by hand."""

from __future__ import annotations

import pytest

from verl_like.training.validation_metrics import ValidationSample, validation_metrics


def row(uid: str, response: str, score: float | None, *, source: str = "s", **details: float | str) -> ValidationSample:
    return ValidationSample(uid=uid, data_source=source, response=response, score=score, details=details)


def test_mean_pass_and_majority_of_two_prompts() -> None:
    """a: 7 7 8 with 8 right: mean 1/3, passes, majority 7 is wrong. b: 1 2 2 with 2 right: mean 2/3, passes, majority
    right.
    """
    samples = [
        row("a", "7", 0.0),
        row("a", "7", 0.0),
        row("a", "8", 1.0),
        row("b", "1", 0.0),
        row("b", "2", 1.0),
        row("b", "2", 1.0),
    ]
    metrics = validation_metrics(samples, 3)
    assert metrics == pytest.approx(
        {"val/num_failed": 0.0, "val/unreadable": 0.0, "val/mean@3": 0.5, "val/pass@3": 1.0, "val/maj@3": 0.5}
    )


def test_one_source_gives_no_metrics_twice_and_two_give_each_its_own() -> None:
    one = validation_metrics([row("a", "x", 1.0, steps=4.0)], 1)
    assert sorted(name for name in one if name.startswith("val/s/")) == ["val/s/steps/mean@1"]
    two = validation_metrics([row("a", "x", 1.0), row("b", "x", 1.0, source="t")], 1)
    kinds = {"num_failed", "unreadable", "mean@1", "pass@1", "maj@1"}
    assert set(two) == {f"val/{source}{kind}" for source in ("", "s/", "t/") for kind in kinds}


def test_sources_are_apart_and_overall_weighs_prompts_equally() -> None:
    samples = [row("a", "x", 1.0, source="s"), row("b", "x", 0.0, source="t"), row("c", "x", 0.0, source="t")]
    metrics = validation_metrics(samples, 1)
    assert (metrics["val/s/mean@1"], metrics["val/t/mean@1"], metrics["val/mean@1"]) == pytest.approx((1.0, 0.0, 1 / 3))


def test_ties_go_to_the_first_seen_answer() -> None:
    assert validation_metrics([row("a", "1", 1.0), row("a", "2", 0.0)], 2)["val/maj@2"] == 1.0
    assert validation_metrics([row("a", "2", 0.0), row("a", "1", 1.0)], 2)["val/maj@2"] == 0.0


def test_votes_are_counted_by_pred_where_the_reward_returns_it() -> None:
    """Three different texts, two of which say 42."""
    samples = [row("a", "it is 41", 0.0, pred="41"), row("a", "42!", 1.0, pred="42"), row("a", "so 42", 1.0, pred="42")]
    assert validation_metrics(samples, 3)["val/maj@3"] == 1.0
    without = [row(s.uid, s.response, s.score) for s in samples]
    assert validation_metrics(without, 3)["val/maj@3"] == 0.0


def test_no_answer_votes_like_any_other_and_is_wrong_where_it_wins() -> None:
    """Twice it is more or less frequent than the right answer, twice as frequent, where the first seen wins."""
    none, right = ("", 0.0), ("7", 1.0)
    for votes, expected in (
        ([right, none, ("8", 0.0), none], 0.0),
        ([none, right, ("8", 0.0), right], 1.0),
        ([none, right, right, none], 0.0),
        ([right, none, none, right], 1.0),
    ):
        samples = [row("a", f"text {i}", score, pred=pred, acc=score) for i, (pred, score) in enumerate(votes)]
        assert validation_metrics(samples, 4)["val/maj@4"] == expected


def test_acc_decides_what_is_correct_where_the_reward_returns_it() -> None:
    samples = [row("a", "x", 0.1, acc=0.0), row("b", "x", 0.6, acc=1.0)]
    metrics = validation_metrics(samples, 1)
    assert metrics["val/mean@1"] == pytest.approx(0.35) and metrics["val/pass@1"] == 0.5
    assert metrics["val/s/acc/mean@1"] == 0.5


def test_a_partial_score_is_not_correct() -> None:
    assert validation_metrics([row("a", "x", 0.99)], 1)["val/pass@1"] == 0.0


def test_failed_rewards_are_counted_and_left_out() -> None:
    """a keeps one of two responses; b loses all and leaves the mean to a."""
    samples = [row("a", "x", 1.0), row("a", "y", None), row("b", "x", None), row("b", "x", None)]
    metrics = validation_metrics(samples, 2)
    assert metrics["val/num_failed"] == 3.0
    assert (metrics["val/mean@2"], metrics["val/pass@2"], metrics["val/maj@2"]) == (1.0, 1.0, 1.0)


def test_only_failures_give_no_means_rather_than_nan() -> None:
    assert validation_metrics([row("a", "x", None)], 1) == {"val/num_failed": 1.0, "val/unreadable": 0.0}


def test_responses_that_broke_a_grader_are_counted_and_count_as_wrong() -> None:
    """a: one broke it and one is right, so mean 1/2; t: one of two functions could not read its response."""
    samples = [
        row("a", "x", 0.0, unreadable=1.0),
        row("a", "y", 1.0),
        row("b", "z", 0.5, source="t", **{"correct.unreadable": 1.0, "form": 1.0}),
        row("b", "z", 0.5, source="t", **{"correct.unreadable": 0.0, "form": 1.0}),
    ]
    metrics = validation_metrics(samples, 2)
    assert (metrics["val/s/unreadable"], metrics["val/t/unreadable"], metrics["val/unreadable"]) == (1.0, 1.0, 2.0)
    assert metrics["val/s/mean@2"] == 0.5
    assert not [name for name in metrics if "unreadable/" in name], "a mean over the ones that are marked says nothing"


def test_equal_uids_of_two_sources_are_two_prompts() -> None:
    samples = [row("0", "x", 1.0, source="s"), row("0", "x", 0.0, source="t")]
    assert validation_metrics(samples, 1)["val/pass@1"] == 0.5


def test_details_are_averaged_over_the_rows_that_have_them() -> None:
    samples = [
        row("a", "x", 1.0, steps=4.0),
        row("a", "x", 1.0),
        row("b", "x", 0.0, steps=2.0),
        row("b", "x", 0.0, steps=float("nan")),
    ]
    assert validation_metrics(samples, 2)["val/s/steps/mean@2"] == 3.0


def test_no_samples_give_only_the_counts() -> None:
    assert validation_metrics([], 4) == {"val/num_failed": 0.0, "val/unreadable": 0.0}
