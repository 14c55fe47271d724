"""Equal blocks of a model, of which few run and one stands for the others: what reads pictures has up to 32."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from verl_like.plan.live_bytes import LiveBytes

NUM_RUN = 3


class RepeatedBlocks:
    """The blocks after the first ``NUM_RUN``, which return their input.

    Args:
        parts: modules of a model, in their order; blocks are those of the most frequent class.
    """

    def __init__(self, parts: Sequence[nn.Module], live: LiveBytes) -> None:
        classes = Counter(type(part) for part in parts)
        self._blocks = [part for part in parts if type(part) is classes.most_common(1)[0][0]] if parts else []
        self._live = live
        self.count = max(len(self._blocks) - NUM_RUN, 0)
        self._before: int | None = None
        self.returned: int | None = None  # moment of the gradient of their output
        self.kept = 0  # bytes that each keeps after its forward pass
        if self.count:
            self._forward = self._blocks[NUM_RUN - 1].forward
            vars(self._blocks[NUM_RUN - 1])["forward"] = self._run
            for block in self._blocks[NUM_RUN:]:
                vars(block)["forward"] = self._skip
                block.requires_grad_(False)

    def _run(self, *arguments: Any, **named: Any) -> Any:
        self._before = self._level()
        return self._forward(*arguments, **named)

    def _skip(self, states: Tensor, *arguments: Any, **named: Any) -> Tensor:
        if self._before is not None:  # the input of the block before has been freed by now
            self.kept, self._before = self._level() - self._before, None
            if states.requires_grad:
                states.register_hook(self._return)  # type: ignore[no-untyped-call]
        return states

    def _return(self, gradient: Tensor) -> None:
        self.returned = self._live.now()

    def _level(self) -> int:
        return self._live.level(self._live.now())

    @property
    def gradients(self) -> int:
        """Bytes of the gradients of each block's weights."""
        block = self._blocks[NUM_RUN - 1]
        return sum(p.numel() * p.itemsize for p in block.parameters() if p.requires_grad)
