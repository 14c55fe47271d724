"""The curriculum: which prompts come, by what was measured of them, and the same ones after a resume."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from verl_like.config.schema import CurriculumConfig
from verl_like.data.curriculum import Curriculum

NUM_ROWS, BATCH_SIZE = 40, 8


def curriculum(*, seed: int = 1, **options: Any) -> Curriculum:
    return Curriculum(NUM_ROWS, batch_size=BATCH_SIZE, config=CurriculumConfig(**options), seed=seed)


def pass_rate(row: int) -> float:
    """Rows 0 to 9 are too hard, 10 to 19 are right, the others too easy."""
    return 0.0 if row < 10 else 0.5 if row < 20 else 1.0


def taken(source: Curriculum, num_batches: int) -> list[list[int]]:
    """So many batches, each measured before the next."""
    found = []
    for _ in range(num_batches):
        found.append(source.next_batch())
        source.feedback({row: pass_rate(row) for row in found[-1]})
    return found


def test_a_batch_has_each_row_once() -> None:
    assert all(len(set(batch)) == len(batch) == BATCH_SIZE for batch in taken(curriculum(), 30))


def test_half_of_each_batch_was_never_drawn_while_there_are_such_rows() -> None:
    """Prompts of the first batch are all new; 32 rows are left, 4 of them in each of the next 8 batches."""
    batches = taken(curriculum(), 10)
    seen = set(batches[0])
    for batch in batches[1:9]:
        assert len(set(batch) - seen) == 4
        seen |= set(batch)
    assert len(seen) == NUM_ROWS and set(batches[9]) <= seen


def test_all_rows_are_drawn_once_before_any_is_repeated_if_requested() -> None:
    batches = taken(curriculum(unseen_frac=1.0), 5)
    assert sorted(row for batch in batches for row in batch) == list(range(NUM_ROWS))


def test_a_share_of_unseen_rows_is_that_of_the_decimal_number() -> None:
    """0.07 * 100 is 7.000000000000001 in floating point, which rounds up to 8."""
    source = Curriculum(300, batch_size=100, config=CurriculumConfig(unseen_frac=0.07), seed=1)
    first, second = taken(source, 2)
    assert len(set(second) - set(first)) == 7


def test_rows_of_the_band_come_more_often_by_their_weight() -> None:
    """Of 10 rows with weight 1 and 30 with 0.02, the former fill most of 8 places; uniform draws give a quarter."""
    source = curriculum(outside_weight=0.02)
    taken(source, 9)
    later = [row for batch in taken(source, 50) for row in batch]
    assert sum(pass_rate(row) == 0.5 for row in later) / len(later) > 0.8
    counts = Counter(later)
    assert all(counts[row] for row in range(10, 20)) and any(counts[row] for row in range(10))


def test_equal_weights_draw_uniformly() -> None:
    source = curriculum(outside_weight=1.0)
    taken(source, 9)
    later = [row for batch in taken(source, 200) for row in batch]
    assert sum(pass_rate(row) == 0.5 for row in later) / len(later) == pytest.approx(0.25, abs=0.05)


def test_new_and_known_rows_are_mixed_within_a_batch() -> None:
    """Mini-batches are cut from the batch in its order, so its first half is not to be all new or all known."""
    halves = []
    for seed in range(5):
        first, second = taken(curriculum(seed=seed), 2)
        halves.append(sum(row in first for row in second[:4]))
    assert set(halves) - {0, 4}


def test_the_newest_visit_counts_for_its_share() -> None:
    """0.25 of 1 and 0.75 of 0 is 0.25: within the band from the second visit on."""
    source = curriculum(newest_frac=0.25, low=0.25, high=0.25)
    source.feedback({3: 0.0})
    assert source.metrics()["curriculum/in_band_frac"] == 0
    source.feedback({3: 1.0})
    assert source.metrics()["curriculum/in_band_frac"] == 1


def test_rows_whose_responses_never_have_a_score_are_drawn_and_are_outside() -> None:
    source = curriculum()
    source.next_batch()
    assert source.metrics() == {"curriculum/unseen_frac": 32 / 40, "curriculum/in_band_frac": 0.0}


@pytest.mark.parametrize("stop_after", [0, 1, 7, 12])
def test_resuming_continues_exactly(stop_after: int) -> None:
    expected = taken(curriculum(), stop_after + 10)
    first = curriculum()
    taken(first, stop_after)
    state = json.dumps(first.state_dict())
    assert taken(first, 10) == expected[stop_after:], "taking the state must not disturb it"
    resumed = curriculum()
    resumed.load_state_dict(json.loads(state))
    assert taken(resumed, 10) == expected[stop_after:]


def test_seeds_and_scores_make_the_difference() -> None:
    assert taken(curriculum(), 3) != taken(curriculum(seed=2), 3)
    one, other = curriculum(), curriculum()
    one.feedback(dict.fromkeys(range(NUM_ROWS), 0.5))
    assert one.next_batch() == other.next_batch(), "nothing was drawn yet"
    assert taken(one, 5) != taken(other, 5)
