"""Files of a configuration, which are YAML with references to other values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_like.config.yaml_text import TOO_DEEP, TooLarge, check_file


def load_file(path: Path) -> Any:
    """As ``OmegaConf.load``, as plain containers with interpolations as they are written.

    Raises:
        yaml.YAMLError: it is no YAML, or too large.
        UnicodeDecodeError: it is no text.
        OmegaConfBaseException: it holds what no configuration does.
    """
    check_file(path)
    try:
        return OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except OSError as error:
        if error.filename is not None or error.errno is not None:
            raise
        raise yaml.YAMLError(str(error)) from None  # OmegaConf's, of a file that holds one scalar
    except RecursionError:
        raise TooLarge(TOO_DEEP) from None
    except (OmegaConfBaseException, UnicodeDecodeError):
        raise
    except ValueError as error:
        raise yaml.YAMLError(str(error)) from None
