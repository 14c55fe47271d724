"""Updates of a policy that is distilled from a frozen model, on any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit._fsdp_ranks import build_engine, build_learner, make_rows, my_rows, weights_of
from verl_like.algorithms.actor_loss import ActorLoss
from verl_like.algorithms.distillation import Distillation
from verl_like.config.schema import ActorConfig, FsdpConfig
from verl_like.protocol import DataProto, Ragged

BETA, COEF = 0.3, 0.7


def rows() -> DataProto:
    made = make_rows(seed=1)
    return DataProto({**made.columns, "old_log_probs": Ragged(made.ragged("advantages").values * 0, _offsets(made))})


def _offsets(table: DataProto) -> Any:
    return table.ragged("response_ids").offsets


def two_updates(student: Path, teacher: Path, *, split: str = "even", **settings: Any) -> dict[str, Any]:
    """Return the metrics of two updates, and the weights after them."""
    learner = build_learner(student, fsdp=FsdpConfig(shard_size="all"), **settings)
    frozen = build_engine(teacher, is_frozen=True, fsdp=FsdpConfig(shard_size="all"))
    learner.engine.distil_from(frozen, beta=BETA)
    loss = ActorLoss(ActorConfig(policy_loss="reinforce"), distillation=Distillation(COEF, "jsd"))
    found = [learner.update(my_rows(rows(), split), loss) for _ in range(2)]
    frozen.offload()
    return {"metrics": found, "weights": weights_of(learner.engine), "is_sharded": frozen.layout.is_sharded}
