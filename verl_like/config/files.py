"""Loader of configuration files: YAML with references to other values."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_like.config.yaml_text import TOO_DEEP, TooLarge, read_text, refuse_large


def load_file(path: Path) -> Any:
    """Load a file with OmegaConf into plain containers; interpolations stay unresolved.

    A text that was loaded before is not parsed again: a recipe is loaded for several reasons, a preset by each recipe.

    Raises:
        yaml.YAMLError: the file is no YAML, or too large.
        UnicodeDecodeError: the file is no text.
        OmegaConfBaseException: OmegaConf does not support the content.
    """
    return deepcopy(_loaded(read_text(path), str(path)))


@lru_cache(maxsize=64)
def _loaded(text: str, name: str) -> Any:
    refuse_large(text)
    stream = StringIO(text)
    stream.name = name  # read by PyYAML, for its messages
    try:
        return OmegaConf.to_container(OmegaConf.load(stream), resolve=False)
    except OSError as error:
        if error.filename is not None or error.errno is not None:
            raise
        raise yaml.YAMLError(str(error)) from None  # OmegaConf raises it for a file with a single scalar
    except RecursionError:
        raise TooLarge(TOO_DEEP) from None
    except (OmegaConfBaseException, UnicodeDecodeError):
        raise
    except ValueError as error:
        raise yaml.YAMLError(str(error)) from None
