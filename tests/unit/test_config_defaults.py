"""The defaults as a tree of OmegaConf, and what is read again with libyaml, equal what the slow ways give."""

from __future__ import annotations

import pytest
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import ValidationError

from verl_like.config.compose import as_yaml
from verl_like.config.defaults import defaults_tree
from verl_like.config.schema import Config, DataConfig, RolloutConfig
from verl_like.config.yaml_text import load, load_again


def test_the_tree_is_the_one_that_omegaconf_builds() -> None:
    assert defaults_tree() == OmegaConf.structured(Config)
    assert OmegaConf.to_object(defaults_tree()) == Config()
    for name, value in (("rollout.n", "many"), ("rollout.unknown", 1), ("data.train_files", 3)):
        for tree in (defaults_tree(), OmegaConf.structured(Config)):
            with pytest.raises((ValidationError, AttributeError)):
                OmegaConf.update(tree, name, value)


def test_a_change_to_one_tree_is_in_no_other() -> None:
    tree = defaults_tree()
    OmegaConf.update(tree, "rollout.n", 7)
    OmegaConf.update(tree, "data.train_files", ["a.parquet"])
    assert OmegaConf.to_object(defaults_tree()) == Config()


def test_what_is_read_again_is_the_same() -> None:
    config = Config(
        data=DataConfig(prompt_key="プロンプト: '\"#\t", train_files=["😀.parquet", "1e-6", "2024-01-01", "~"]),
        rollout=RolloutConfig(engine_kwargs={"a": [1, 2.5e-7, None, True, {"b": "x\ny\n"}], "empty": {}}),
    )
    text = as_yaml(config)
    assert load_again(text) == load(text) == yaml.safe_load(text)
    assert load_again(text)["data"]["train_files"] == config.data.train_files
