"""Every option once: type, default, unit and one sentence; a file for each section.

Dataclasses own defaults; the YAML files under ``conf/`` own choices. A value that cannot be right by itself
is refused by its ``check``; rules that span sections live in :mod:`verl_like.checks.rules`.
"""

from __future__ import annotations

from verl_like.config.schema.actor import ActorConfig, PolicyLossConfig
from verl_like.config.schema.algorithm import AlgorithmConfig, CorrectionConfig
from verl_like.config.schema.cluster import ClusterConfig
from verl_like.config.schema.critic import CriticConfig
from verl_like.config.schema.data import CURRICULUM, CurriculumConfig, DataConfig
from verl_like.config.schema.fsdp import FsdpConfig
from verl_like.config.schema.model import LoraConfig, ModelConfig
from verl_like.config.schema.optim import OptimConfig
from verl_like.config.schema.ref import RefConfig
from verl_like.config.schema.reward import JudgeConfig, RewardConfig, RewardModelConfig
from verl_like.config.schema.rollout import RolloutConfig, ValSamplingConfig
from verl_like.config.schema.root import Config
from verl_like.config.schema.trainer import TrainerConfig

__all__ = [
    "CURRICULUM",
    "ActorConfig",
    "AlgorithmConfig",
    "ClusterConfig",
    "Config",
    "CorrectionConfig",
    "CriticConfig",
    "CurriculumConfig",
    "DataConfig",
    "FsdpConfig",
    "JudgeConfig",
    "LoraConfig",
    "ModelConfig",
    "OptimConfig",
    "PolicyLossConfig",
    "RefConfig",
    "RewardConfig",
    "RewardModelConfig",
    "RolloutConfig",
    "TrainerConfig",
    "ValSamplingConfig",
]
