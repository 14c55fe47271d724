"""Folders of the shipped configuration."""

from __future__ import annotations

from pathlib import Path


def conf_dir() -> Path:
    """Return the folder of the shipped groups: next to the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise FileNotFoundError(f"found no conf/config.yaml inside or next to {package}; reinstall verl_like")


def group_dirs() -> list[Path]:
    """Return the folder of each group."""
    return sorted(path for path in conf_dir().iterdir() if path.is_dir())
