"""Run an engine over two ranks with a policy sharded over the same ranks: log-probs and sync.

Each part of the engine's weights is assembled from two shards. Other checks cover the policy, so no engine of one rank
is built for comparison. Greedy tokens would differ from it: if two tokens are equally likely within bfloat16's
precision, the order of sums decides between them.
"""

from __future__ import annotations

from benchmarks.gpu_check.engines import GIB, engine, mean_gap, requests, sync, weight_bytes
from benchmarks.gpu_check.policies import model_path, policy
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings

NUM_SAMPLES = 64


def check(scene: Scene) -> Findings:
    found = Findings()
    rollout = engine(scene, ranks=2, is_eager=True)
    actor = policy(scene, model_path(scene))
    sync(scene, rollout, actor, 0)  # the first sync also opens connections
    _, sync_s = sync(scene, rollout, actor, 1)
    gap = mean_gap(rollout, actor, requests(scene, NUM_SAMPLES, temperature=1.0))
    found.add("gap_mean_nats", gap, at_most=scene.max_engine_gap)
    found.add("two_ranks_sync_gib_per_s", weight_bytes(actor) / GIB / sync_s)
    return found
