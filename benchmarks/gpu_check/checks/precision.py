"""Log-probs of a policy in bfloat16, against those of the same weights in float32; and with logits in float32."""

from __future__ import annotations

import numpy as np

from benchmarks.gpu_check.policies import model_path, policy, uneven_rows
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings

# A number in bfloat16 is off by up to 2^-9 of itself. A state is rounded about four times a layer (twice as it is
# added to, twice inside of what is added), which adds up like a random walk: over 24 layers to 2^-9 * sqrt(96), 2 %.
# Logits of random weights spread by 0.02 * sqrt(896), 0.6 nats, so 0.01 nats are expected; a wrong mask, position or
# scale costs some tenths.
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
    # All that is left out is the rounding of logits, a part of the gap; which way it went is chance in few tokens.
    found.add("float32_logits_gap_mean_nats", float(closer), at_most=1.1 * float(gap.mean()))
    return found
