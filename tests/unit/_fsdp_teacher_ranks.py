"""Updates of a policy that is distilled from a frozen model, or from itself, on any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.unit._fsdp_ranks import VOCAB, build_engine, build_learner, make_rows, my_rows, weights_of
from tests.unit._teacher_roles import remote, setup_of
from verl_like.algorithms.actor_loss import ActorLoss
from verl_like.algorithms.distillation import Distillation
from verl_like.config.schema import ActorConfig, FsdpConfig
from verl_like.protocol import DataProto, Ragged
from verl_like.workers.teachers import TeachersRole

BETA, COEF = 0.3, 0.7
GATHERED = FsdpConfig(shard_size="all")


def rows() -> DataProto:
    made = make_rows(seed=1)
    return DataProto({**made.columns, "old_log_probs": Ragged(made.ragged("advantages").values * 0, _offsets(made))})


def privileged_rows() -> DataProto:
    """Return these rows with prompts of a teacher that sees a longer context in every second group of three."""
    made, rng = rows(), np.random.default_rng(7)
    prompts = made.ragged("prompt_ids")
    contexts = [rng.integers(0, VOCAB, 5 * (group % 2)) for group in range(len(prompts) // 3)]
    of_teacher = [np.concatenate([contexts[row // 3], prompt]) for row, prompt in enumerate(prompts)]
    return DataProto({**made.columns, "teacher_prompt_ids": Ragged.from_rows(of_teacher, "int32")})


def _offsets(table: DataProto) -> Any:
    return table.ragged("response_ids").offsets


def two_updates(
    student: Path,
    teacher: Path,
    *,
    split: str = "even",
    is_privileged: bool = False,
    is_itself: bool = False,
    fsdp: FsdpConfig = GATHERED,
    **settings: Any,
) -> dict[str, Any]:
    """Return the metrics of two updates, and the weights after them.

    Args:
        is_privileged: whether the teacher sees its own prompts.
        is_itself: whether the policy is its own teacher, without its adapters if it has some.
    """
    learner = build_learner(student, fsdp=fsdp, **settings)
    engine = learner.engine
    if is_itself:
        frozen = engine
        engine.distil_from([engine], beta=BETA, without_adapters=engine.module.adapters is not None)
    else:
        frozen = build_engine(teacher, is_frozen=True, fsdp=fsdp, model=settings.get("model"))
        engine.distil_from([frozen], beta=BETA)
    loss = ActorLoss(ActorConfig(policy_loss="reinforce"), distillation=Distillation(COEF, "jsd"))
    table = privileged_rows() if is_privileged else rows()
    found = [learner.update(my_rows(table, split), loss) for _ in range(2)]
    frozen.offload()
    return {"metrics": found, "weights": weights_of(engine), "is_sharded": frozen.layout.is_sharded}


def two_updates_by_teacher(
    student: Path, models: list[Path], teachers: list[int], *, split: str = "even", **settings: Any
) -> dict[str, Any]:
    """Return the metrics of two updates in which each row has its own teacher, and the weights after them."""
    learner = build_learner(student, fsdp=GATHERED, **settings)
    frozen = [build_engine(path, is_frozen=True, fsdp=GATHERED) for path in models]
    learner.engine.distil_from(frozen, beta=BETA)
    loss = ActorLoss(ActorConfig(policy_loss="reinforce"), distillation=Distillation(COEF, "jsd"))
    table = my_rows(DataProto({**rows().columns, "teacher": np.array(teachers)}), split)
    found = [learner.update(table, loss) for _ in range(2)]
    return {"metrics": found, "weights": weights_of(learner.engine)}


def log_probs_by_teacher(models: list[Path], teachers: list[int], split: str = "even") -> dict[str, Any]:
    """Return the log-probs of each row of this rank by its teacher, under the row's number, and the rows that each
    model has run here.
    """
    num_run = [0] * len(models)
    engines: list[Any] = []

    def engine_of(path: str) -> Any:
        engine = build_engine(Path(path), is_frozen=True, fsdp=GATHERED, max_tokens=25)
        number, run = len(engines), engine.forward_log_probs
        engines.append(engine)

        def counted(rows: DataProto, **settings: Any) -> Any:
            num_run[number] += len(rows)
            return run(rows, **settings)

        engine.forward_log_probs = counted
        return engine

    role = TeachersRole(setup_of({f"teacher {path}": str(path) for path in models}, temperature=0.8), engine_of)
    table = my_rows(DataProto({**rows().columns, "number": np.arange(len(teachers))}), split)
    numbers = np.asarray(table["number"]) if len(table) else np.empty(0, np.int64)
    _, found = role.ref_log_probs(remote(table), np.array(teachers)[numbers], used=sorted(set(teachers)))
    log_probs = dict(zip(numbers.tolist(), found.ragged("ref_log_probs"), strict=True))
    return {"log_probs": log_probs, "num_run": num_run, "sharded": [engine.layout.is_sharded for engine in engines]}
