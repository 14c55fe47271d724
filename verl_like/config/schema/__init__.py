"""All options, each with type, default, unit and one sentence; one file per section.

Dataclasses own defaults. The YAML files under ``conf/`` own choices. An option's ``check`` refuses a value that is
wrong by itself; rules that span sections are in :mod:`verl_like.checks.rules`.
"""

from __future__ import annotations

from verl_like.config.schema.actor import ActorConfig, PolicyLossConfig
from verl_like.config.schema.algorithm import AlgorithmConfig, CorrectionConfig
from verl_like.config.schema.cluster import ClusterConfig
from verl_like.config.schema.critic import CriticConfig
from verl_like.config.schema.data import CURRICULUM, CurriculumConfig, DataConfig
from verl_like.config.schema.environment import EnvironmentConfig
from verl_like.config.schema.fsdp import FsdpConfig
from verl_like.config.schema.model import LoraConfig, ModelConfig
from verl_like.config.schema.optim import OptimConfig
from verl_like.config.schema.preference import DpoConfig, RmConfig
from verl_like.config.schema.ref import RefConfig
from verl_like.config.schema.reward import JudgeConfig, RewardConfig, RewardModelConfig
from verl_like.config.schema.rollout import RolloutConfig, ValSamplingConfig
from verl_like.config.schema.root import Config
from verl_like.config.schema.sft import SftConfig
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
    "DpoConfig",
    "EnvironmentConfig",
    "FsdpConfig",
    "JudgeConfig",
    "LoraConfig",
    "ModelConfig",
    "OptimConfig",
    "PolicyLossConfig",
    "RefConfig",
    "RewardConfig",
    "RewardModelConfig",
    "RmConfig",
    "RolloutConfig",
    "SftConfig",
    "TrainerConfig",
    "ValSamplingConfig",
]
