"""A step of each command that trains: its passes through models, and whether it generates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from verl_like.algorithms.roles import needs, step_columns
from verl_like.config.schema import AlgorithmConfig, Config, EnvironmentConfig, RewardConfig

TRAIN = "train"
JOBS = (TRAIN, "sft", "dpo", "rm")  # names of commands
ROW_COLUMNS = 3  # of tokens: prompt, response, and the mask of learnt tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """Passes of a model over rows of a step, all of them unless ``share`` is below 1.

    Args:
        epochs: of updates; 0 for one forward pass.
        teachers: models of which one runs before each pass, and whose output layer then stays gathered; each has an
            equal part of the passes.
        share: of the rows that the model runs.
    """

    role: str
    epochs: int = 0
    teachers: tuple[str, ...] = ()
    share: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStep:
    """The stages of a step with a model.

    Args:
        generates: whether there are engines, which generate the responses.
        before: stages that run before the first step, and in no step.
        in_validation: stages that run only in validations; a plan has their memory, but not their seconds.
        num_columns: token columns of a batch; all but the prompt's have a response's length.
        teacher_tokens: of the longest prompt of a teacher that has its own; 0 for none.
    """

    stages: Mapping[str, Stage]
    generates: bool
    num_columns: int
    before: frozenset[str] = frozenset()
    in_validation: frozenset[str] = frozenset()
    teacher_tokens: int = 0

    @property
    def generates_in_steps(self) -> bool:
        """Whether a step generates, not only a validation."""
        return self.generates and not self.in_validation

    @property
    def roles(self) -> frozenset[str]:
        """Return the names of the models."""
        return frozenset(name for stage in self.stages.values() for name in (stage.role, *stage.teachers))


def references(config: Config) -> dict[str, str]:
    """Return {name in the plan: path} of the frozen models of the reference, or of its teachers.

    The path of a reference is empty if it is the policy's model.
    """
    ref = config.ref
    if not ref.teachers:
        return {"ref": ref.path}
    names = {path: [name for name, of in ref.teachers.items() if of == path] for path in ref.teacher_models}
    return {f"teacher {', '.join(of)}": path for path, of in names.items()}


def step_of(config: Config, job: str) -> PlannedStep:
    """Return a step of a job.

    Args:
        config: as :func:`planned_config` returns it.
        job: one of ``JOBS``.
    """
    if job != TRAIN:
        ref = {"ref_log_probs": Stage(role="ref" if config.ref.path else "actor")} if job == "dpo" else {}
        generates = config.val_generates(job)
        scoring = {"reward model": Stage(role="reward model")} if generates and needs(config).reward_model else {}
        return PlannedStep(
            stages={**ref, **scoring, "update_actor": Stage(role="actor", epochs=1)},
            generates=generates,
            num_columns=ROW_COLUMNS,
            before=frozenset(ref),
            in_validation=frozenset({"rollout", *scoring, "sync"} if generates else ()),
        )
    wanted, stages = needs(config), dict[str, Stage]()
    if wanted.reward_model:
        stages["reward model"] = Stage(role="reward model")
    if wanted.old_log_probs:
        stages["old_log_probs"] = Stage(role="actor")
    models = tuple(references(config))
    if wanted.ref_log_probs and config.ref.teachers:  # one after another, each with its rows
        stages |= {f"log-probs of {name}": Stage(role=name, share=1 / len(models)) for name in models}
    elif wanted.ref_log_probs:
        stages["ref_log_probs"] = Stage(role="actor" if config.ref_is_actor else "ref")
    if wanted.critic:
        stages["values"] = Stage(role="critic")
        stages["update_critic"] = Stage(role="critic", epochs=config.critic.epochs)
    teachers = ("actor",) if config.ref_is_actor else models
    teachers = teachers if config.algorithm.distillation == "jsd" else ()
    stages["update_actor"] = Stage(role="actor", epochs=config.actor.epochs, teachers=teachers)
    columns = [name for name in step_columns(config) if name != "teacher_prompt_ids"]
    return PlannedStep(
        stages=stages,
        generates=True,
        num_columns=len(columns),
        teacher_tokens=config.longest_teacher_prompt if config.algorithm.self_distillation else 0,
    )


def as_the_reference_sees(config: Config) -> Config:
    """Return the configuration with the longest prompt that the reference sees, instead of the policy's."""
    return replace(config, data=replace(config.data, max_prompt_length=config.longest_teacher_prompt))


def planned_config(config: Config, job: str) -> Config:
    """Return the configuration that a plan of a job reads.

    One on given rows makes one update on all rows of a step; the two rows of a pair share a prompt. What it does not
    read has its default.
    """
    if job == TRAIN:
        return config
    if not config.val_generates(job):
        config = replace(config, environment=EnvironmentConfig(), reward=RewardConfig())
    return replace(
        config,
        algorithm=AlgorithmConfig(),
        rollout=replace(config.rollout, n=1 if job == "sft" else 2),
        actor=replace(
            config.actor, epochs=1, mini_batch_size=config.data.train_batch_size, kl_loss_coef=0.0, entropy_coef=0.0
        ),
        ref=replace(config.ref, path=config.dpo.ref_path if job == "dpo" else "", teachers={}),
    )
