"""An engine over two ranks beside a policy that is sharded over them: log-probs and sync.

Both parts of the engine's weights come out of two shards, and the policy itself is checked by other checks, so an
engine of one rank is not built again. Greedy tokens would not be the same: where two tokens are as likely as bfloat16
can tell, another order of sums chooses the other one.
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
    sync(scene, rollout, actor, 0)  # the first one waits for connections
    _, sync_s = sync(scene, rollout, actor, 1)
    gap = mean_gap(rollout, actor, requests(scene, NUM_SAMPLES, temperature=1.0))
    found.add("gap_mean_nats", gap, at_most=scene.max_engine_gap)
    found.add("two_ranks_sync_gib_per_s", weight_bytes(actor) / GIB / sync_s)
    return found
