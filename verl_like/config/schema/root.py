"""The whole configuration."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema.actor import ActorConfig
from verl_like.config.schema.algorithm import AlgorithmConfig
from verl_like.config.schema.cluster import ClusterConfig
from verl_like.config.schema.critic import CriticConfig
from verl_like.config.schema.data import DataConfig
from verl_like.config.schema.fields import option
from verl_like.config.schema.model import ModelConfig
from verl_like.config.schema.ref import RefConfig
from verl_like.config.schema.reward import RewardConfig
from verl_like.config.schema.rollout import RolloutConfig
from verl_like.config.schema.trainer import TrainerConfig
from verl_like.config.section import Section


@dataclass(kw_only=True)
class Config(Section):
    """The whole configuration; its sections are the prefixes of options on the command line."""

    data: DataConfig = option(DataConfig, "Rows and prompts.")
    model: ModelConfig = option(ModelConfig, "The actor's model.")
    actor: ActorConfig = option(ActorConfig, "The policy that learns.")
    rollout: RolloutConfig = option(RolloutConfig, "Generation.")
    ref: RefConfig = option(RefConfig, "The frozen reference.")
    critic: CriticConfig = option(CriticConfig, "The value model.")
    reward: RewardConfig = option(RewardConfig, "Scoring.")
    algorithm: AlgorithmConfig = option(AlgorithmConfig, "Advantages and KL.")
    trainer: TrainerConfig = option(TrainerConfig, "The loop.")
    cluster: ClusterConfig = option(ClusterConfig, "Machines and processes.")

    @property
    def validates(self) -> bool:
        """Whether the run validates: there are validation rows, and ``val_before_train`` or ``test_freq`` is on."""
        return bool(self.data.val_files) and (self.trainer.val_before_train or self.trainer.test_freq > 0)

    @property
    def ref_is_actor(self) -> bool:
        """Whether the reference is the actor without its adapters, that is, the initial model of both."""
        return self.model.lora.rank > 0 and not self.ref.path

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
