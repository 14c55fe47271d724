"""Compare log-probs of a policy in bfloat16, also with float32 logits, with those of the same weights in float32."""

from __future__ import annotations

import numpy as np

from benchmarks.gpu_check.policies import model_path, policy, uneven_rows
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings

# The relative rounding error of bfloat16 is up to 2^-9. A hidden state is rounded about four times per layer (two
# additions, two values that are added), and the errors add up like a random walk: 2^-9 * sqrt(96), 2 %, over 24 layers.
# Logits of random weights have a spread of 0.02 * sqrt(896), 0.6 nats, so a gap of 0.01 nats is expected. A wrong mask,
# position or scale changes log-probs by some tenths.
MAX_MEAN_GAP = 0.02


def check(scene: Scene) -> Findings:
    found = Findings()
    path = model_path(scene)
    rows = uneven_rows(scene, path)
    log_probs = {
        dtype: policy(scene, path, dtype=dtype, is_frozen=True).forward_log_probs(rows, temperature=1.0)["log_probs"]
        for dtype in scene.dtypes
    }
    gap = np.abs(log_probs["bfloat16"] - log_probs["float32"])
    found.add("gap_mean_nats", float(gap.mean()), at_most=MAX_MEAN_GAP)
    found.add("gap_max_nats", float(gap.max()))
    engine = policy(scene, path, dtype="bfloat16", is_frozen=True, float32_logits=True)
    exact = engine.forward_log_probs(rows, temperature=1.0)["log_probs"]
    closer = np.abs(exact - log_probs["float32"]).mean()
    # Only the rounding of logits is avoided, which is a part of the gap; with few tokens its sign is random.
    found.add("float32_logits_gap_mean_nats", float(closer), at_most=1.1 * float(gap.mean()))
    return found
