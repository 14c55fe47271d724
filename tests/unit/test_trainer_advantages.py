"""The advantages stage: whole groups at a time, with the numbers of the whole batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verl_like.algorithms.advantages import ADVANTAGES
from verl_like.algorithms.covariance import covariance_ranks
from verl_like.algorithms.roles import needs, step_columns, update_columns
from verl_like.config.schema import AlgorithmConfig, Config
from verl_like.protocol import Array, DataProto, Ragged
from verl_like.training.score_advantages import score_advantages
from verl_like.workers import advantages
from verl_like.workers.advantages import AdvantageRole, columns_needed, row_statistics, whole_groups
from verl_like.workers.messages import AdvantageReport, RowRewards, UpdateShare


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


def facts_of(group_ids: list[int], rewards: list[float], **more: Any) -> RowRewards:
    return RowRewards(group_ids=np.array(group_ids), rewards=np.array(rewards, np.float32), **more)


def stage(
    config: AlgorithmConfig, rows: Rows, facts: RowRewards, *, kl_coef: float | None = None
) -> tuple[AdvantageReport, DataProto]:
    """Run the stage; the KL coefficient is the configuration's unless a controller changed it."""
    return AdvantageRole(config, 1.0).advantages(rows, facts, kl_coef=config.kl_coef if kl_coef is None else kl_coef)  # type: ignore[arg-type]


def run(
    config: AlgorithmConfig, rows: Rows, group_ids: list[int], rewards: list[float]
) -> tuple[dict[str, float], list[list[float]]]:
    """Return the metrics and the advantages of each row."""
    report, table = stage(config, rows, facts_of(group_ids, rewards))
    return report.metrics, [row.tolist() for row in table.ragged("advantages")]


def test_rows_are_reported_by_mean_minimum_and_maximum_over_sampled_tokens() -> None:
    """Of a tool's token nothing counts, a row without tokens of the policy has nothing, and neighbours stay apart."""
    mask = Ragged.from_rows([[1, 0, 1], [], [0, 0], [1], [1, 1]], "bool")
    mean, least, largest = row_statistics(np.array([1, 99, -2, 5, 5, 3, -1, 0], np.float32), mask)
    nan = np.nan
    np.testing.assert_array_equal(mean, [-0.5, nan, nan, 3, -0.5])
    np.testing.assert_array_equal(least, [-2, nan, nan, 3, -1])
    np.testing.assert_array_equal(largest, [1, nan, nan, 3, 0])
    nobody, _, _ = row_statistics(np.array([1, 2], np.float32), Ragged.from_rows([[0, 0]], "bool"))
    assert np.isnan(nobody).all()


def test_groups_are_never_cut_and_stay_within_the_limit() -> None:
    ids, lengths = np.array([0, 0, 1, 1, 1, 2, 5, 5]), np.array([3, 1, 1, 1, 1, 1, 0, 2])
    assert list(whole_groups(ids, lengths, 4)) == [(0, 2), (2, 6), (6, 8)]
    assert list(whole_groups(ids, lengths, 100)) == [(0, 8)]
    assert list(whole_groups(ids, lengths, 1)) == [(0, 2), (2, 5), (5, 6), (6, 8)], (
        "a group larger than the limit goes whole"
    )


def test_grpo_compares_siblings_and_gives_each_token_its_responses_advantage() -> None:
    config = AlgorithmConfig(divide_by_std=False)
    report, found = run(config, rows_of([[1, 1], [1], [1, 1, 1], [1]]), [0, 0, 1, 1], [1.0, 0.0, 3.0, 5.0])
    assert found == [[0.5, 0.5], [-0.5], [-1.0] * 3, [1.0]]
    assert "reward/kl_penalty_mean" not in report and "critic/explained_variance" not in report


@pytest.mark.parametrize("name", [name for name, entry in ADVANTAGES.items() if entry.takes == "scores"])
@pytest.mark.parametrize("divide_by_std", [True, False])
def test_advantages_from_scores_alone_are_those_of_the_tokens(name: str, divide_by_std: bool) -> None:
    config = AlgorithmConfig(
        adv_estimator=name, divide_by_std=divide_by_std, reward_components={"form": 0.5, "answer": 2.0}
    )
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 40, 32)
    facts = facts_of(
        np.repeat([3, 0, 7, 5], 8).tolist(),
        [*np.abs(generator.normal(size=24)), *[0.3] * 8],  # the last group's are equal
        components={part: generator.normal(size=32).astype(np.float32) for part in ("form", "answer")},
        role_baselines=generator.normal(size=32),
    )
    report, table = stage(config, rows_of([[1] * int(length) for length in lengths]), facts)
    found, metrics = score_advantages(facts, lengths, config)
    share = UpdateShare(mini_batches=[], advantages=found["advantage"])
    spread = share.columns(Ragged(np.ones(lengths.sum(), np.bool_), np.r_[0, lengths.cumsum()]))["advantages"]
    np.testing.assert_allclose(spread.values, table.ragged("advantages").values, rtol=1e-6, atol=1e-6)
    assert spread.offsets.tolist() == table.ragged("advantages").offsets.tolist()
    assert found["has_advantage"].tolist() == report.has_advantage.tolist()
    assert found["has_advantage"].any() == (name != "none")
    assert metrics == pytest.approx(report.metrics, rel=1e-5, abs=1e-6)


def test_a_token_that_the_policy_did_not_choose_has_no_advantage() -> None:
    share = UpdateShare(mini_batches=[], advantages=np.array([2.0, -1.0], np.float32))
    spread = share.columns(Ragged.from_rows([[True, False, True], [True]], "bool"))["advantages"]
    assert [row.tolist() for row in spread] == [[2.0, 0.0, 2.0], [-1.0]]
    assert UpdateShare(mini_batches=[]).columns(spread) == {}


@pytest.mark.parametrize(
    ("overrides", "is_of_tokens"),
    [
        ({}, False),
        ({"algorithm.kl_coef": 0.1}, True),
        ({"algorithm.adv_estimator": "gae"}, True),
        ({"actor.policy_loss": "clip_cov"}, True),
        ({"actor.kl_loss_coef": 0.1}, False),
    ],
)
def test_advantages_are_of_tokens_where_more_than_scores_is_read(
    overrides: dict[str, object], is_of_tokens: bool
) -> None:
    config = Config()
    for name, value in overrides.items():
        section, _, option = name.partition(".")
        setattr(getattr(config, section), option, value)
    assert needs(config).advantages_of_tokens == is_of_tokens
    assert ("advantages" in step_columns(config)) == ("advantages" in update_columns(config)) == is_of_tokens


def test_how_many_rows_are_unpacked_at_once_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 9, 24)
    masks = [[1] * int(n) for n in lengths]
    values = [generator.normal(size=n).tolist() for n in lengths]
    ids, scores = [i // 4 for i in range(24)], generator.normal(size=24).tolist()
    config = AlgorithmConfig(adv_estimator="gae", lam=0.9)
    whole, small = rows_of(masks, values=values), rows_of(masks, values=values)
    report, expected = run(config, whole, ids, scores)
    monkeypatch.setattr(advantages, "MAX_TOKENS", 50)
    report_small, found = run(config, small, ids, scores)
    assert sum(names != ["response_mask"] for _, names in small.fetched) > 1
    for row, other in zip(found, expected, strict=True):
        assert row == pytest.approx(other, rel=1e-5, abs=1e-6)
    assert report_small == pytest.approx(report, rel=1e-5, abs=1e-6)


def test_whitening_is_over_all_tokens_of_the_batch_that_the_policy_chose() -> None:
    masks = [[1, 0, 1], [1, 1], [1]]
    rows = rows_of(masks, values=[[0.1, 9.0, 0.3], [0.2, 0.4], [0.0]])
    report, found = run(AlgorithmConfig(adv_estimator="gae"), rows, [0, 1, 2], [1.0, 0.0, 0.5])
    chosen = [
        value
        for row, mask in zip(found, masks, strict=True)
        for value, is_chosen in zip(row, mask, strict=True)
        if is_chosen
    ]
    assert np.mean(chosen) == pytest.approx(0, abs=1e-6) and np.std(chosen, ddof=1) == pytest.approx(1, rel=1e-4)
    assert report["advantages/mean"] == pytest.approx(0, abs=1e-6)
    assert found[0][1] == 0, "a token that the policy did not choose has no advantage"


def test_the_score_sits_on_the_last_token_the_policy_chose() -> None:
    """With lambda and gamma 1 and values of zero, the return before each chosen token is the whole score."""
    rows = rows_of([[1, 1, 0]], values=[[0.0, 0.0, 0.0]])
    _, table = stage(AlgorithmConfig(adv_estimator="gae"), rows, facts_of([0], [2.0]))
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


def test_the_penalty_weighs_what_the_controller_says_and_not_what_the_run_began_with() -> None:
    config = AlgorithmConfig(kl_coef=0.1, kl_type="k1", divide_by_std=False)
    rows = rows_of([[1], [1]], old_log_probs=[[-1.0], [-2.0]], ref_log_probs=[[-1.5], [-2.0]])
    report, table = stage(config, rows, facts_of([0, 0], [1.0, 1.0]), kl_coef=0.4)
    assert report.metrics["reward/kl_penalty_mean"] == pytest.approx(0.4 * 0.5 / 2)
    assert table.ragged("advantages").values == pytest.approx([-0.1, 0.1])


# --- inputs of only some estimators


def test_remax_compares_each_response_with_its_prompts_greedy_one() -> None:
    facts = facts_of([0, 0, 1], [1.0, 0.0, 0.5], baseline_rewards=np.array([0.25, 0.25, 0.5], np.float32))
    report, table = stage(AlgorithmConfig(adv_estimator="remax"), rows_of([[1, 0, 1], [1], [1, 1]]), facts)
    assert [row.tolist() for row in table.ragged("advantages")] == [[0.75, 0.0, 0.75], [-0.25], [0.0, 0.0]]
    assert report.has_advantage.tolist() == [True, True, False]


def test_gdpo_learns_from_the_weighted_components_and_not_from_the_score() -> None:
    """Undivided and centred, `correct` is +-0.5 and `format` -+1: 4 * correct + format, over the standard deviation of
    the batch's rows.
    """
    components = {"correct": np.array([1, 0, 1, 1], np.float32), "format": np.array([0, 2, 1, 1], np.float32)}
    config = AlgorithmConfig(
        adv_estimator="gdpo", reward_components={"correct": 4.0, "format": 1.0}, divide_by_std=False
    )
    _, table = stage(
        config, rows_of([[1], [1, 1], [1], [1]]), facts_of([0, 0, 1, 1], [9.0, 9.0, 3.0, 5.0], components=components)
    )
    total = [4 * 0.5 - 1, 4 * -0.5 + 1, 0, 0]
    expected = np.array(total) / np.std(total, ddof=1)
    assert [row.tolist() for row in table.ragged("advantages")] == [
        pytest.approx([expected[0]], rel=1e-4),
        pytest.approx([expected[1]] * 2, rel=1e-4),
        [0.0],
        [0.0],
    ]


@pytest.mark.parametrize("name", ["remax", "gdpo"])
def test_facts_stay_with_their_rows_when_groups_are_unpacked_a_few_at_a_time(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    draw = [generator.normal(size=24).astype(np.float32) for _ in range(3)]
    facts = facts_of(
        [i // 4 for i in range(24)], draw[0].tolist(), baseline_rewards=draw[1], components={"correct": draw[2]}
    )
    config = AlgorithmConfig(adv_estimator=name, reward_components={"correct": 1.0})
    masks = [[1] * int(n) for n in generator.integers(1, 9, 24)]
    _, whole = stage(config, rows_of(masks), facts)
    monkeypatch.setattr(advantages, "MAX_TOKENS", 1)
    _, found = stage(config, rows_of(masks), facts)
    np.testing.assert_allclose(found.ragged("advantages").values, whole.ragged("advantages").values, rtol=1e-6)


def test_covariances_are_ranked_among_the_valid_tokens_of_each_mini_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 9, 12)
    masks = [np.r_[1, generator.integers(0, 2, n - 1)].tolist() for n in lengths]
    rows = rows_of(masks, old_log_probs=[(-generator.exponential(size=n)).tolist() for n in lengths])
    mini_batches = np.array([0] * 4 + [1] * 6 + [2] * 2)
    scores = generator.normal(size=12).tolist()
    facts = facts_of([i // 2 for i in range(12)], scores, mini_batches=mini_batches, ranks_covariance=True)
    monkeypatch.setattr(advantages, "MAX_TOKENS", 1)  # the cut into mini-batches is not that into blocks
    _, table = stage(AlgorithmConfig(), rows, facts)
    found, computed, old = (
        column.values
        for column in (table.ragged("covariance_rank"), table.ragged("advantages"), rows.table.ragged("old_log_probs"))
    )
    mask, of_token = rows.table.ragged("response_mask").values, np.repeat(mini_batches, lengths)
    for mini_batch in range(3):
        chosen = mask & (of_token == mini_batch)
        expected = covariance_ranks(torch.from_numpy(old[chosen]), torch.from_numpy(computed[chosen])).numpy()
        assert found[chosen].tolist() == expected.tolist()
        assert found[chosen].min() == 0, "each mini-batch has a token of highest covariance"
    assert not found[~mask].any()
    assert found.dtype == np.float32


def test_tokens_of_high_entropy_are_those_of_each_mini_batch() -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 9, 12)
    masks = [np.r_[1, generator.integers(0, 2, n - 1)].tolist() for n in lengths]
    rows = rows_of(masks, entropy=[generator.exponential(size=n).tolist() for n in lengths])
    mini_batches = np.array([0] * 4 + [1] * 6 + [2] * 2)
    facts = facts_of([i // 2 for i in range(12)], generator.normal(size=12).tolist(), mini_batches=mini_batches)
    _, table = stage(AlgorithmConfig(top_entropy_quantile=0.3), rows, facts)
    assert "covariance_rank" not in table.columns
    found, mask = table.ragged("is_high_entropy").values, rows.table.ragged("response_mask").values
    entropies, of_token = rows.table.ragged("entropy").values, np.repeat(mini_batches, lengths)
    for mini_batch in range(3):
        chosen = mask & (of_token == mini_batch)
        threshold = np.quantile(entropies[chosen].astype(np.float64), 0.7)
        assert found[chosen].tolist() == (entropies[chosen] >= threshold).tolist()
    assert not found[~mask].any() and found.dtype == np.bool_


def test_entropies_have_their_stage_and_columns_only_if_a_quantile_is_set() -> None:
    plain, chosen = Config(), Config()
    chosen.algorithm.top_entropy_quantile = 0.2
    assert needs(chosen).old_log_probs and needs(chosen).advantages_of_tokens and needs(chosen).compares_mini_batches
    assert "is_high_entropy" in needs(chosen).advantage_columns and "is_high_entropy" in update_columns(chosen)
    assert {"entropy", "is_high_entropy"} <= set(step_columns(chosen))
    assert not {"entropy", "is_high_entropy"} & {*step_columns(plain), *update_columns(plain)}
    assert not needs(plain).entropy and not needs(plain).compares_mini_batches


def test_a_custom_function_gets_padded_tensors_and_its_numbers_return_packed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from verl_like.algorithms.types import Advantages\n"
        "def places(inputs, config):\n"
        "    assert inputs.rewards.shape == inputs.response_mask.shape == (2, 3)\n"
        "    found = inputs.response_mask.cumsum(-1) + inputs.rewards\n"
        "    return Advantages(advantages=found, returns=found)\n"
    )
    config = AlgorithmConfig(adv_estimator=f"{tmp_path / 'mine.py'}:places")
    _, found = run(config, rows_of([[1, 0, 1], [1, 1]]), [0, 0], [10.0, 20.0])
    assert found == [[1.0, 1.0, 12.0], [1.0, 22.0]]


def test_ranks_are_made_only_where_the_mini_batches_are_given() -> None:
    rows = rows_of([[1], [1]], old_log_probs=[[-1.0], [-2.0]])
    _, table = stage(AlgorithmConfig(), rows, facts_of([0, 0], [0.0, 1.0]))
    assert set(table.columns) == {"advantages"}


def test_returns_are_handed_on_only_where_a_critic_learns_them() -> None:
    rows = rows_of([[1], [1]], values=[[0.0], [0.0]])
    assert set(stage(AlgorithmConfig(adv_estimator="gae"), rows, facts_of([0, 1], [1.0, 0.0]))[1].columns) == {
        "advantages",
        "returns",
    }


def test_the_report_says_which_rows_have_any_advantage() -> None:
    rows = rows_of([[1, 1], [0, 0], [1], [1], [1, 0, 1]])
    report, table = stage(AlgorithmConfig(), rows, facts_of([0, 0, 0, 1, 1], [1.0, 0.0, 0.0, 2.0, 2.0]))
    assert report.has_advantage.tolist() == [True, False, True, False, False], (
        "masked whole, and a group of equal rewards"
    )
    assert report.has_advantage.tolist() == [bool(row.any()) for row in table.ragged("advantages")]


def test_one_token_with_an_advantage_is_enough() -> None:
    """k1 is 0 except for one token: only its penalty distinguishes the responses, and only up to that token."""
    config = AlgorithmConfig(adv_estimator="reinforce", kl_coef=0.1, kl_type="k1")
    rows = rows_of(
        [[1, 1, 1], [1, 1]],
        old_log_probs=[[-1.0, -1.0, -1.0], [-1.0, -1.0]],
        ref_log_probs=[[-2.0, -1.0, -1.0], [-1.0, -1.0]],
    )
    report, table = stage(config, rows, facts_of([0, 0], [0.0, 0.0]))
    assert [np.flatnonzero(row).tolist() for row in table.ragged("advantages")] == [[0], []]
    assert report.has_advantage.tolist() == [True, False]


OWN = """
import torch
from verl_like.algorithms.types import Advantages

def centred(inputs, config, *, returned="advantages", shift=0.0):
    scores = inputs.rewards.sum(-1)
    advantages = (scores - shift)[:, None] * inputs.response_mask
    metrics = {"score": scores, "token": inputs.rewards, "shift": shift}
    return {
        "advantages": Advantages(advantages=advantages, returns=advantages, metrics=metrics),
        "tuple": (advantages, advantages),
        "rows": Advantages(advantages=scores, returns=advantages),
        "std": Advantages(advantages=advantages, returns=advantages, metrics={"std": scores}),
        "text": Advantages(advantages=advantages, returns=advantages, metrics={"note": "none"}),
        "batch": Advantages(advantages=advantages, returns=advantages, metrics={"two": torch.zeros(2)}),
    }[returned]
"""


def own(folder: Path, **kwargs: Any) -> AlgorithmConfig:
    (folder / "own.py").write_text(OWN)
    return AlgorithmConfig(adv_estimator=f"{folder}/own.py:centred", estimator_kwargs=kwargs)


@pytest.mark.parametrize("max_tokens", [1, 100])
def test_metrics_of_a_users_estimator_are_means_over_the_whole_batch(
    max_tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever parts the batch is worked on in; a response of which the policy chose no token does not count."""
    monkeypatch.setattr(advantages, "MAX_TOKENS", max_tokens)
    rows = rows_of([[1, 1], [1], [0, 1, 1], [0]])
    found, _ = run(own(tmp_path, shift=0.5), rows, [0, 0, 1, 1], [1.0, 0.0, 5.0, 7.0])
    assert found["advantages/score"] == pytest.approx((1 + 0 + 5) / 3)
    assert found["advantages/token"] == pytest.approx((1 + 0 + 5) / 5), "over the five tokens that were chosen"
    assert found["advantages/shift"] == 0.5
    assert found["advantages/mean"] == pytest.approx((2 * 0.5 - 0.5 + 2 * 4.5) / 5)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("tuple", "returned a tuple; expected Advantages. Return Advantages"),
        (
            "rows",
            "returned a tensor of shape [3] for 'advantages'; expected a tensor [B, T] = [3, 2] like inputs.rewards",
        ),
        ("std", "returned a metric 'std' that is reported by the stage itself; expected another name"),
        ("text", "returned a metric 'note' that is a str; expected another name and a number for each token [3, 2]"),
        ("batch", "returned a metric 'two' that is a tensor of shape [2]; expected another name and a number"),
    ],
)
def test_what_is_no_advantages_is_refused_with_the_name_and_the_form(
    returned: str, message: str, tmp_path: Path
) -> None:
    config = own(tmp_path, returned=returned)
    with pytest.raises(ValueError, match=re.escape(f"algorithm.adv_estimator={config.adv_estimator} {message}")):
        run(config, rows_of([[1, 1], [1], [1]]), [0, 0, 1], [1.0, 0.0, 5.0])
