"""The schema's defaults as a tree of OmegaConf."""

from __future__ import annotations

import functools
import pickle

from omegaconf import DictConfig, OmegaConf

from verl_like.config.schema import Config


def defaults_tree() -> DictConfig:
    """Return a new tree with the types and defaults of all options."""
    tree = pickle.loads(_pickled())
    assert isinstance(tree, DictConfig), f"the defaults are a {type(tree).__name__}, expected a DictConfig"
    return tree


@functools.cache
def _pickled() -> bytes:
    # OmegaConf takes 30 times as long to build the tree as pickle takes to load it.
    return pickle.dumps(OmegaConf.structured(Config))
