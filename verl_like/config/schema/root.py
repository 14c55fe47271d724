"""The whole configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verl_like.config.schema.actor import ActorConfig
from verl_like.config.schema.algorithm import AlgorithmConfig
from verl_like.config.schema.cluster import ClusterConfig
from verl_like.config.schema.critic import CriticConfig
from verl_like.config.schema.data import DataConfig
from verl_like.config.schema.environment import EnvironmentConfig
from verl_like.config.schema.fields import option
from verl_like.config.schema.model import ModelConfig
from verl_like.config.schema.preference import DpoConfig, RmConfig
from verl_like.config.schema.ref import RefConfig
from verl_like.config.schema.reward import ENVIRONMENT, RewardConfig
from verl_like.config.schema.rollout import RolloutConfig
from verl_like.config.schema.sft import SftConfig
from verl_like.config.schema.trainer import TrainerConfig
from verl_like.config.section import Section


@dataclass(kw_only=True)
class Config(Section):
    """The whole configuration; its sections are the prefixes of options on the command line."""

    data: DataConfig = option(DataConfig, "Rows and prompts.")
    model: ModelConfig = option(ModelConfig, "The actor's model.")
    actor: ActorConfig = option(ActorConfig, "The policy that learns.")
    rollout: RolloutConfig = option(RolloutConfig, "Generation.")
    environment: EnvironmentConfig = option(EnvironmentConfig, "Episodes of several turns.")
    ref: RefConfig = option(RefConfig, "The frozen reference.")
    critic: CriticConfig = option(CriticConfig, "The value model.")
    reward: RewardConfig = option(RewardConfig, "Scoring.")
    algorithm: AlgorithmConfig = option(AlgorithmConfig, "Advantages and KL.")
    sft: SftConfig = option(SftConfig, "Supervised training.")
    dpo: DpoConfig = option(DpoConfig, "Training on preferences: pairs of responses, or single responses with a label.")
    rm: RmConfig = option(RmConfig, "Training of a reward model.")
    trainer: TrainerConfig = option(TrainerConfig, "The loop.")
    cluster: ClusterConfig = option(ClusterConfig, "Machines and processes.")

    @property
    def validates(self) -> bool:
        """Whether the run validates: there are validation rows, and ``val_before_train`` or ``test_freq`` is on."""
        return bool(self.data.val_files) and (self.trainer.val_before_train or self.trainer.test_freq > 0)

    def val_generates(self, job: str) -> bool:
        """Return whether a job on given rows also generates in its validations, in rollout engines."""
        return job == "sft" and self.sft.val_generate

    @property
    def scoring(self) -> RewardConfig:
        """The reward section; without a reward function, an environment is the only scorer."""
        is_alone = self.environment.path and not (self.reward.function or self.reward.functions)
        return replace(self.reward, function=ENVIRONMENT) if is_alone else self.reward

    @property
    def needs_ground_truth(self) -> bool:
        """Whether rows need a ground truth: something other than an environment scores them."""
        others = self.reward.functions or self.reward.model.path or self.reward.judge.path
        return self.scoring.function != ENVIRONMENT or bool(others)

    @property
    def episode_tokens(self) -> int:
        """Largest number of tokens of an episode after its first prompt."""
        return self.environment.max_episode_tokens or self.data.max_response_length

    @property
    def ref_is_actor(self) -> bool:
        """Whether the actor's model computes the reference's log-probs: with its adapters if the policy is its own
        teacher, otherwise without them, so that it is the initial model.
        """
        has_own_model = bool(self.ref.path or self.ref.teachers)
        return self.algorithm.self_distillation == "self" or (self.model.lora.rank > 0 and not has_own_model)

    @property
    def longest_teacher_prompt(self) -> int:
        """Tokens of the longest prompt that the reference sees: the policy's, or that of a teacher that sees more."""
        context = self.data.max_privileged_context_length if self.algorithm.self_distillation else 0
        return self.data.max_prompt_length + context

    @property
    def ref_changes(self) -> bool:
        """Whether the reference is another model after some steps, so that checkpoints hold it."""
        return self.ref.reset_every > 0 or self.algorithm.self_distillation == "ema"

    @property
    def syncs_adapter(self) -> bool:
        """Whether syncs send only adapters to the engine."""
        return self.model.lora.rank > 0 and self.rollout.lora == "adapter"

    def deals_by_queue(self, device: str) -> bool:
        """Return whether engines on ``device`` ("cpu" or "cuda") take prompts from a queue as capacity allows."""
        if self.rollout.dealing == "auto":
            return device == "cuda" and not self.trainer.deterministic
        return self.rollout.dealing == "queue"

    @property
    def val_metric(self) -> str:
        """Name of the validation metric that selects the best checkpoint."""
        return self.trainer.best_metric or f"val/mean@{self.rollout.val.n}"
