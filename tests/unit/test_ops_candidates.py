"""Log-probs over the candidates that a sampler kept equal a float64 softmax over these, and so do gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.unit.test_ops_log_probs import TOKENS, VOCABULARY, gradients, inputs
from verl_like.ops.candidates import Candidates, candidates_of
from verl_like.ops.log_probs import TokenStats, TokenStatsFunction
from verl_like.ops.tiles import OutputLayer, TileFunctions
from verl_like.protocol import Ragged

CPU = torch.device("cpu")


def sets(targets: Tensor) -> list[list[int]]:
    """Return candidates of each target: one, a few, many, all in one tile, or (an empty list) the vocabulary."""
    numbers = np.random.default_rng(0)
    sizes = [0, 1, 3, 700]
    found = []
    for index, target in enumerate(targets.tolist()):
        size, end = sizes[index % 4], VOCABULARY if index % 8 < 4 else 40
        others = numbers.choice(end, min(size, end - 1), replace=False).tolist()
        found.append([*{*others, target}] if size else [])
    return found


def of_sets(found: list[list[int]], targets: Tensor, *, size: int | None = None) -> Candidates:
    """Return the candidates of two rows of targets."""
    cut = len(targets) // 3
    rows = [found[:cut], found[cut:]]
    return candidates_of(
        Ragged.from_rows([[token for of in row for token in of] for row in rows], "int32"),
        Ragged.from_rows([[len(of) for of in row] for row in rows], "int32"),
        Ragged.from_rows([targets[:cut].numpy(), targets[cut:].numpy()], "int32"),
        size=size or len(targets),
        device=CPU,
    )


def brute_force(hidden: Tensor, layer: OutputLayer, targets: Tensor, found: list[list[int]]) -> TokenStats:
    logits = hidden.double() @ layer.weight.double().T + (0 if layer.bias is None else layer.bias)
    if layer.softcap:
        logits = layer.softcap * torch.tanh(logits / layer.softcap)
    rows = []
    for row, target, ids in zip(logits / 0.6, targets.tolist(), found, strict=True):
        ids = ids or list(range(len(row)))
        log_probs = row[ids].log_softmax(-1)
        probs = log_probs.exp()
        rows.append((log_probs[ids.index(target)], -(probs * log_probs).sum(), probs.square().sum()))
    return TokenStats(*(torch.stack(each) for each in zip(*rows, strict=True)))


# Several tiles with some kept for backward, and one.
@pytest.mark.parametrize("budget_mib", [1, 512])
@pytest.mark.parametrize("softcap", [0.0, 3.0])
@pytest.mark.parametrize("takes_scratch", [True, False])
@pytest.mark.parametrize("all_limited", [True, False])  # then only candidates have logits
def test_statistics_over_candidates_equal_float64(
    budget_mib: int, softcap: float, takes_scratch: bool, all_limited: bool
) -> None:
    hidden, weight, bias, targets = inputs()
    found = [ids or [token] * all_limited for ids, token in zip(sets(targets), targets.tolist(), strict=True)]
    layer = OutputLayer(weight=weight, bias=bias, softcap=softcap)
    function = TokenStatsFunction(budget_mib=budget_mib)
    function.tile_functions = TileFunctions(take_scratch=takes_scratch)  # compiled functions take none
    candidates = of_sets(found, targets)
    stats = function(hidden, layer, targets, temperature=0.6, entropy=True, sum_pi_squared=True, candidates=candidates)
    expected = brute_force(hidden, layer, targets, found)
    for one, other in zip(stats, expected, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one.double(), other, atol=2e-5, rtol=1e-5)
    for one, other in zip(
        gradients(stats, hidden, weight, bias), gradients(expected, hidden, weight, bias), strict=True
    ):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_a_lone_candidate_has_probability_one_and_no_gradient() -> None:
    hidden, weight, _, targets = inputs()
    found = of_sets([[token] for token in targets.tolist()], targets)
    stats = TokenStatsFunction(budget_mib=1)(
        hidden, OutputLayer(weight=weight), targets, temperature=1.0, candidates=found
    )
    assert stats.log_probs.tolist() == [0.0] * TOKENS
    [of_weight] = torch.autograd.grad(stats.log_probs.sum(), (weight,))
    assert not of_weight.any()


def test_the_whole_vocabulary_as_candidates_changes_no_bit() -> None:
    hidden, weight, _, targets = inputs(num_tokens=6, vocabulary=512)
    layer = OutputLayer(weight=weight)
    found = []
    for candidates in (None, of_sets([[]] * 6, targets), of_sets([list(range(512))] * 6, targets)):
        stats = TokenStatsFunction(budget_mib=1)(
            hidden, layer, targets, temperature=0.7, entropy=True, candidates=candidates
        )
        found.append((stats.log_probs, *gradients(stats, hidden, weight)))
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def test_a_rank_takes_the_candidates_of_the_targets_that_it_has() -> None:
    hidden, weight, _, targets = inputs()
    found, layer = sets(targets), OutputLayer(weight=weight)
    positions = torch.tensor([5, 9, 10, 3, 63])
    own = TokenStatsFunction(budget_mib=1)(
        hidden[positions], layer, targets[positions], temperature=0.6, candidates=of_sets(found, targets).at(positions)
    )
    whole = brute_force(hidden, layer, targets, found).log_probs[positions]
    torch.testing.assert_close(own.log_probs.double(), whole, atol=2e-5, rtol=1e-5)


def test_targets_that_fill_up_a_pass_have_one_candidate() -> None:
    hidden, weight, _, targets = inputs()
    targets[50:] = 0
    found = of_sets(sets(targets[:50]), targets[:50], size=TOKENS)
    stats = TokenStatsFunction(budget_mib=1)(
        hidden, OutputLayer(weight=weight), targets, temperature=1.0, entropy=True, candidates=found
    )
    assert all(values.isfinite().all() for values in stats if values is not None)
    assert not stats.log_probs[50:].any()


@pytest.mark.parametrize(
    ("ids", "counts", "message"),
    [
        ([[4, 5]], [[1, 2]], "candidate_ids and num_candidates differ"),
        ([[4, 5]], [[2]], "one entry per response token"),
        ([[4, 5]], [[1, 1]], "response token .1. is not among its own candidates"),
    ],
)
def test_candidates_that_do_not_fit_the_response_are_refused(
    ids: list[list[int]], counts: list[list[int]], message: str
) -> None:
    columns = (Ragged.from_rows(rows, "int32") for rows in (ids, counts, [[4, 6]]))
    with pytest.raises(AssertionError, match=message):
        candidates_of(*columns, size=2, device=CPU)
