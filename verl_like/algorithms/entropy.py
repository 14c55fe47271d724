"""Choose the tokens of highest entropy of a mini-batch."""

from __future__ import annotations

import torch
from torch import Tensor


def is_high_entropy(entropies: Tensor, share: float) -> Tensor:
    """Return the tokens whose entropy is at least the (1 - share) quantile (2506.01939).

    The quantile is interpolated as in ``torch.quantile``, which refuses more than 16 million numbers: of K tokens those
    are chosen that have at most share * (K - 1) tokens of higher entropy. Equal entropies are all chosen or none.

    Args:
        entropies: [K] nats, of the valid tokens of one mini-batch in any order.
        share: above 0; 1 chooses all tokens.

    Returns:
        [K] bool.
    """
    assert entropies.isfinite().all(), "entropies of valid tokens must be finite"
    ascending = entropies.sort().values
    num_higher = len(entropies) - torch.searchsorted(ascending, entropies, right=True)
    # 0.2 * 10 may come out a little below 2.
    return num_higher <= share * (len(entropies) - 1) + 1e-9 * len(entropies)
