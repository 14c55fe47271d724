"""Rows to forward passes: what is spread evenly over them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verl_like.backends.fsdp.micro_batches import MicroBatchPlan, aligned_columns
from verl_like.context import replaced
from verl_like.ops.matmul_libraries import MatmulLibraries
from verl_like.protocol import DataProto, Ragged

ROWS = [
    60,
    50,
    10,
    10,
    10,
    10,
    10,
    10,
    10,
]  # tokens, of which the last is never fed to the model: 171 in all, two passes of at most 101


def planned(
    rows: DataProto, *, max_tokens: int, balance_by: str = "tokens", share_prompts: bool = False
) -> MicroBatchPlan:
    return MicroBatchPlan(
        rows,
        max_tokens=max_tokens,
        remove_padding=True,
        share_prompts=share_prompts,
        balance_by=balance_by,
        device=torch.device("cpu"),
    )


def test_a_pass_of_the_teachers_longer_prompts_fits_the_budget() -> None:
    def prompts(length: int) -> Ragged:
        return Ragged.from_rows([[row] * length for row in range(6)], "int32")

    columns = {"prompt_ids": prompts(2), "response_ids": prompts(10)}
    rows = DataProto({**columns, "teacher_prompt_ids": prompts(50)})
    passes = list(planned(rows, max_tokens=120).passes())
    assert [len(batch.rows) for batch in passes] == [2, 2, 2]
    assert max(batch.teacher_inputs.num_tokens for batch in passes) <= 120
    assert len(list(planned(DataProto(columns), max_tokens=120).passes())) == 1


@pytest.mark.parametrize(("onednn", "sizes"), [([], [180, 171]), (["forward pass 384x384x384"], [184, 176])])
def test_sizes_are_rounded_up_only_for_onednn(onednn: list[str], sizes: list[int]) -> None:
    """180 fed tokens, of which 171 predict others."""
    responses = [[0] * (length - 1) for length in ROWS]
    columns = {
        "prompt_ids": Ragged.from_rows([[0, 0]] * len(ROWS), "int32"),
        "response_ids": Ragged.from_rows(responses, "int32"),
    }
    with replaced(MatmulLibraries, MatmulLibraries(onednn)):
        [batch] = planned(DataProto(columns), max_tokens=1000).passes()
    assert [batch.inputs.input_ids.numel(), len(batch.inputs.targets)] == sizes


def tokens_of_passes(balance_by: str) -> list[list[int]]:
    responses = np.array(ROWS) - 1
    rows = DataProto(
        {
            "prompt_ids": Ragged.from_lengths(np.zeros(len(ROWS), np.int32), np.ones(len(ROWS), np.int64)),
            "response_ids": Ragged.from_lengths(np.zeros(int(responses.sum()), np.int32), responses),
        }
    )
    plan = planned(rows, max_tokens=101, balance_by=balance_by)
    return [sorted((ROWS[row] for row in batch.rows), reverse=True) for batch in plan.passes()]


def test_tokens_are_spread_evenly_by_default() -> None:
    assert sorted(map(sum, tokens_of_passes("tokens"))) == [90, 90]


def spread_of_squares(passes: list[list[int]]) -> int:
    squares = [sum(n * n for n in tokens) for tokens in passes]
    return max(squares) - min(squares)


def test_attention_spreads_squares_and_keeps_to_the_budget_of_tokens() -> None:
    passes = tokens_of_passes("attention")
    assert max(sum(n - 1 for n in tokens) for tokens in passes) <= 101
    assert spread_of_squares(passes) < spread_of_squares(tokens_of_passes("tokens"))


def grouped(num_prompts: int, num_responses: int, *, prompt: int, longest: int) -> DataProto:
    """Return groups of shuffled rows, each group with its own prompt and responses of 1 to ``longest`` tokens."""
    rng = np.random.default_rng(0)
    prompts = np.repeat(rng.integers(0, 10**6, (num_prompts, prompt)), num_responses, axis=0)
    responses = [rng.integers(0, 9, length) for length in rng.integers(1, longest + 1, len(prompts))]
    rows = DataProto(
        {"prompt_ids": Ragged.from_rows(prompts, "int32"), "response_ids": Ragged.from_rows(responses, "int32")}
    )
    return rows.select_idxs(rng.permutation(len(rows)))


def test_a_prompt_is_computed_once_for_all_rows_that_fit_into_a_pass() -> None:
    rows = grouped(6, 8, prompt=50, longest=20)
    tokens = {}
    for share_prompts in (True, False):
        plan = planned(rows, max_tokens=400, share_prompts=share_prompts)
        passes = list(plan.passes())
        tokens[share_prompts] = [batch.inputs.input_ids.numel() for batch in passes]
        assert sorted(np.concatenate([batch.rows for batch in passes])) == list(range(len(rows)))
        assert max(tokens[share_prompts]) <= 400
    assert sum(tokens[False]) - sum(tokens[True]) == 6 * 7 * 50


def test_a_group_that_does_not_fit_into_a_pass_is_cut_and_a_longer_row_has_its_own_pass() -> None:
    rows = grouped(1, 30, prompt=50, longest=100)
    plan = planned(rows, max_tokens=120, share_prompts=True)
    passes = list(plan.passes())
    for batch in passes:
        assert batch.inputs.input_ids.numel() <= 120 or len(batch.rows) == 1
    assert any(batch.inputs.input_ids.numel() > 120 for batch in passes)
    responses = rows.ragged("response_ids")
    for batch in passes:
        assert batch.inputs.targets.tolist() == responses.take(batch.rows).values.tolist()


@pytest.mark.parametrize("share_prompts", [True, False])
def test_a_pass_has_rows_of_one_teacher_and_empty_passes_keep_the_order_of_teachers(share_prompts: bool) -> None:
    """Also of rows with one prompt and different teachers."""
    rows = grouped(6, 8, prompt=50, longest=20)
    teachers = np.arange(len(rows)) % 3 * 2  # the second and the fourth have no rows
    plan = MicroBatchPlan(
        DataProto({**rows.columns, "teacher": teachers}),
        max_tokens=400,
        remove_padding=True,
        share_prompts=share_prompts,
        balance_by="tokens",
        device=torch.device("cpu"),
        num_teachers=5,
    )
    passes = list(plan.passes())
    assert sorted(np.concatenate([batch.rows for batch in passes])) == list(range(len(rows)))
    assert all((teachers[batch.rows] == batch.teacher).all() for batch in passes)
    own = plan.num_passes
    assert own[1] == own[3] == 0 and min(own[0], own[2], own[4]) > 1
    wanted = [count + 1 for count in own]
    expected = [teacher for teacher in range(5) for _ in range(wanted[teacher])]
    completed = list(plan.passes(wanted))
    assert [batch.teacher for batch in completed] == expected
    assert sum(len(batch.rows) == 0 for batch in completed) == 5


def test_the_column_of_teachers_is_ignored_where_no_pass_runs_one() -> None:
    rows = grouped(2, 4, prompt=50, longest=20)
    table = DataProto({**rows.columns, "teacher": np.arange(len(rows))})
    assert planned(table, max_tokens=400).num_passes == planned(rows, max_tokens=400).num_passes


@pytest.mark.parametrize("remove_padding", [True, False])
@pytest.mark.parametrize("balance_by", ["tokens", "attention"])
def test_both_rows_of_a_pair_run_in_one_pass(balance_by: str, remove_padding: bool) -> None:
    rows = grouped(20, 2, prompt=50, longest=20)
    numbers = np.unique(
        [row.tobytes() for row in np.asarray(rows.ragged("prompt_ids").to_padded())], return_inverse=True
    )[1]
    table = DataProto({**rows.columns, "pair": numbers})
    counts = {}
    for share_prompts in (True, False):
        for max_tokens in (400, 30):  # 30: no pair fits, and each has its own pass
            plan = MicroBatchPlan(
                table,
                max_tokens=max_tokens,
                remove_padding=remove_padding,
                share_prompts=share_prompts,
                balance_by=balance_by,
                device=torch.device("cpu"),
            )
            passes = list(plan.passes())
            counts[share_prompts, max_tokens] = len(passes)
            assert sorted(np.concatenate([batch.rows for batch in passes])) == list(range(len(rows)))
            for batch in passes:
                assert (np.unique(numbers[batch.rows], return_counts=True)[1] == 2).all()
                assert batch.inputs.input_ids.numel() <= 400
    assert counts[True, 30] == counts[False, 30] == 20
    assert counts[True, 400] < counts[False, 400] if remove_padding else counts[True, 400] == counts[False, 400]


@pytest.mark.parametrize("share_prompts", [True, False])
def test_a_teachers_pass_has_the_policys_responses_after_its_own_prompts(share_prompts: bool) -> None:
    rows = DataProto(
        {
            "prompt_ids": Ragged.from_rows([[1, 2], [1, 2], [3]], "int32"),
            "teacher_prompt_ids": Ragged.from_rows([[9, 1, 2], [9, 1, 2], [3]], "int32"),
            "response_ids": Ragged.from_rows([[4, 5, 6], [7, 8], [6]], "int32"),
        }
    )
    [batch] = planned(rows, max_tokens=100, share_prompts=share_prompts).passes()
    assert torch.equal(batch.teacher_inputs.targets, batch.inputs.targets)
    for inputs, prompts in ((batch.inputs, {(1, 2), (3,)}), (batch.teacher_inputs, {(9, 1, 2), (3,)})):
        ids, positions = inputs.input_ids[0].tolist(), inputs.position_ids[0].tolist()
        starts = [index for index, position in enumerate(positions) if position == 0]
        found = {next(prompt for prompt in prompts if tuple(ids[at : at + len(prompt)]) == prompt) for at in starts}
        assert found == prompts
    del rows.columns["teacher_prompt_ids"]
    [batch] = planned(rows, max_tokens=100, share_prompts=share_prompts).passes()
    assert batch.teacher_inputs is batch.inputs


def test_prompts_are_no_column_of_responses_even_if_their_lengths_are_equal() -> None:
    ids = Ragged.from_rows([[1, 2], [3]], "int32")
    names = ("prompt_ids", "teacher_prompt_ids", "response_ids", "advantages")
    assert set(aligned_columns(DataProto(dict.fromkeys(names, ids)))) == {"response_ids", "advantages"}
