"""Loader of configuration files: YAML with references to other values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_like.config.yaml_text import TOO_DEEP, TooLarge, check_file


def load_file(path: Path) -> Any:
    """Load a file with OmegaConf into plain containers; interpolations stay unresolved.

    Raises:
        yaml.YAMLError: the file is no YAML, or too large.
        UnicodeDecodeError: the file is no text.
        OmegaConfBaseException: OmegaConf does not support the content.
    """
    check_file(path)
    try:
        return OmegaConf.to_container(OmegaConf.load(path), resolve=False)
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
