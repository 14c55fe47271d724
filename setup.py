"""Packages and the shipped configuration; everything declarative is in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGES = ["verl_like", "verl_like.*", "verl_like_migrate", "verl_like_migrate.*"]


def conf_packages() -> dict[str, str]:
    """``conf/`` beside the package becomes ``verl_like.conf`` inside it, one package per folder of YAML files."""
    folders = {file.parent for file in Path("conf").rglob("*.yaml")}
    return {".".join(("verl_like", *folder.parts)): folder.as_posix() for folder in sorted(folders)}


setup(
    packages=[*find_packages(include=PACKAGES), *conf_packages()],
    package_dir=conf_packages(),
    package_data={
        "verl_like": ["py.typed"],
        "verl_like_migrate": ["keys/*.yaml"],
        **{name: ["*.yaml"] for name in conf_packages()},
    },
)
