"""Bytes that compiled tile functions read and write, as the compiler counts them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch
from torch._inductor.graph import GraphLowering

from verl_like.ops.tiles import LOWEST, Sums, TileFunctions

ROWS, COLUMNS = 512, 640
FLOAT, HALF = 4, 2


@contextmanager
def counted_bytes() -> Iterator[list[float]]:
    """Collect, for each graph that is compiled, the bytes per logit that its kernels read and write."""
    found: list[float] = []
    compiled = GraphLowering.codegen

    def codegen(graph: GraphLowering) -> object:
        made = compiled(graph)
        found.append(graph.count_bytes()[0] / (ROWS * COLUMNS))
        return made

    with patch.object(GraphLowering, "codegen", codegen), torch._inductor.config.patch(force_disable_caches=True):
        torch._dynamo.reset()
        yield found
        torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize("with_entropy", [False, True])
def test_a_tile_is_read_for_its_sums_and_its_gradient_written_once(with_entropy: bool) -> None:
    functions = TileFunctions().compiled()
    zeros, logits = torch.zeros(ROWS), torch.randn(ROWS, COLUMNS)
    chosen = torch.zeros(ROWS, dtype=torch.int64)
    sums = Sums(zeros + LOWEST, zeros, zeros, zeros if with_entropy else None, None)
    optional = zeros if with_entropy else None
    before = logits.clone()
    with counted_bytes() as found:
        functions.add(sums, logits, chosen, None)
        functions.gradient(logits, zeros, chosen, zeros, optional, optional, None, torch.bfloat16)
    assert torch.equal(logits, before), "a change would be another write"
    of_sums, of_gradient = found
    assert of_sums <= 2 * FLOAT + 0.1, "at most one read for the maximum and one for the sums"
    assert of_gradient <= FLOAT + HALF + 0.1
