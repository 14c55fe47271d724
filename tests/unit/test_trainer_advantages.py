"""The advantages stage: whole groups at a time, with the numbers of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from verl_like.config.schema import AlgorithmConfig
from verl_like.protocol import Array, DataProto, Ragged
from verl_like.workers import advantages
from verl_like.workers.advantages import AdvantageRole, columns_needed, whole_groups


@dataclass
class Rows:
    """A RemoteRows whose table is here; remembers how many rows were fetched at once, and which columns."""

    table: DataProto
    fetched: list[tuple[int, list[str]]]

    def select(self, rows: Array) -> Rows:
        return Rows(self.table.select_idxs(rows), self.fetched)

    def fetch(self, columns: Sequence[str], *, timeout_s: float) -> DataProto:
        self.fetched.append((len(self.table), list(columns)))
        return self.table.only(columns)


def rows_of(masks: list[list[int]], **columns: list[list[float]]) -> Rows:
    table = {"response_mask": Ragged.from_rows(masks, "bool")}
    return Rows(DataProto({**table, **{name: Ragged.from_rows(rows, "float32") for name, rows in columns.items()}}), [])


def run(config: AlgorithmConfig, rows: Rows, group_ids: list[int], scores: list[float]) -> tuple[dict[str, float], list[list[float]]]:
    report, table = AdvantageRole(config, 1.0).advantages(rows, np.array(group_ids), np.array(scores, np.float32))  # type: ignore[arg-type]
    return report, [row.tolist() for row in table.ragged("advantages")]


def test_groups_are_never_cut_and_stay_within_the_limit() -> None:
    ids = np.array([0, 0, 1, 1, 1, 2, 5, 5])
    assert [part.tolist() for part in whole_groups(ids, 4)] == [[0, 1], [2, 3, 4, 5], [6, 7]]
    assert [part.tolist() for part in whole_groups(ids, 100)] == [list(range(8))]
    assert [part.tolist() for part in whole_groups(ids, 1)] == [[0, 1], [2, 3, 4], [5], [6, 7]], "a group larger than the limit goes whole"


def test_grpo_compares_siblings_and_gives_each_token_its_responses_advantage() -> None:
    config = AlgorithmConfig(divide_by_std=False)
    report, found = run(config, rows_of([[1, 1], [1], [1, 1, 1], [1]]), [0, 0, 1, 1], [1.0, 0.0, 3.0, 5.0])
    assert found == [[0.5, 0.5], [-0.5], [-1.0] * 3, [1.0]]
    assert "reward/kl_penalty_mean" not in report and "critic/explained_variance" not in report


def test_how_many_rows_are_unpacked_at_once_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 9, 24)
    masks = [[1] * int(n) for n in lengths]
    values = [generator.normal(size=n).tolist() for n in lengths]
    ids, scores = [i // 4 for i in range(24)], generator.normal(size=24).tolist()
    config = AlgorithmConfig(adv_estimator="gae", lam=0.9)
    whole, small = rows_of(masks, values=values), rows_of(masks, values=values)
    report, expected = run(config, whole, ids, scores)
    monkeypatch.setattr(advantages, "MAX_ROWS", 8)
    report_small, found = run(config, small, ids, scores)
    assert max(count for count, names in small.fetched if names != ["response_mask"]) == 8
    for row, other in zip(found, expected, strict=True):
        assert row == pytest.approx(other, rel=1e-5, abs=1e-6)
    assert report_small == pytest.approx(report, rel=1e-5, abs=1e-6)


def test_whitening_is_over_all_tokens_of_the_batch_that_the_policy_chose() -> None:
    masks = [[1, 0, 1], [1, 1], [1]]
    rows = rows_of(masks, values=[[0.1, 9.0, 0.3], [0.2, 0.4], [0.0]])
    report, found = run(AlgorithmConfig(adv_estimator="gae"), rows, [0, 1, 2], [1.0, 0.0, 0.5])
    chosen = [value for row, mask in zip(found, masks, strict=True) for value, is_chosen in zip(row, mask, strict=True) if is_chosen]
    assert np.mean(chosen) == pytest.approx(0, abs=1e-6) and np.std(chosen, ddof=1) == pytest.approx(1, rel=1e-4)
    assert report["advantages/mean"] == pytest.approx(0, abs=1e-6)
    assert found[0][1] == 0, "a token that the policy did not choose has no advantage"


def test_the_score_sits_on_the_last_token_the_policy_chose() -> None:
    """With lambda and gamma 1 and values of zero, the return before each chosen token is the whole score."""
    rows = rows_of([[1, 1, 0]], values=[[0.0, 0.0, 0.0]])
    _, table = AdvantageRole(AlgorithmConfig(adv_estimator="gae"), 1.0).advantages(rows, np.array([0]), np.array([2.0], np.float32))  # type: ignore[arg-type]
    assert table.ragged("returns")[0].tolist() == [2.0, 2.0, 0.0]


def test_kl_in_the_reward_is_taken_off_token_by_token_and_reported() -> None:
    """k1 is old - ref: 0.5 and 0.1 nats, times 0.1; the siblings' scores are equal, so only the penalty is left."""
    config = AlgorithmConfig(kl_coef=0.1, kl_type="k1", divide_by_std=False)
    assert columns_needed(config) == ["old_log_probs", "ref_log_probs"]
    rows = rows_of([[1, 1], [1]], old_log_probs=[[-1.0, -1.0], [-2.0]], ref_log_probs=[[-1.5, -1.1], [-2.0]])
    report, found = run(config, rows, [0, 0], [1.0, 1.0])
    assert report["reward/kl_penalty_mean"] == pytest.approx(0.06 / 2)
    assert found[0] == pytest.approx([-0.03, -0.03]) and found[1] == pytest.approx([0.03])


def test_only_the_columns_that_are_read_are_fetched() -> None:
    rows = rows_of([[1], [1]], values=[[1.0], [1.0]], old_log_probs=[[1.0], [1.0]])
    run(AlgorithmConfig(), rows, [0, 0], [0.0, 1.0])
    assert {name for _, names in rows.fetched for name in names} == {"response_mask"}


def test_the_critics_explained_variance_is_one_where_values_are_the_returns() -> None:
    rows = rows_of([[1], [1]], values=[[1.0], [3.0]])
    report, _ = run(AlgorithmConfig(adv_estimator="gae"), rows, [0, 1], [1.0, 3.0])
    assert report["critic/explained_variance"] == pytest.approx(1.0)
    assert torch.get_num_threads() >= 1
