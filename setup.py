"""Packages and the shipped configuration; everything declarative is in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

# verl_like, and its sibling packages, which are in the same wheel.
NAMES = ("verl_like", "verl_like_environments", "verl_like_graders", "verl_like_migrate")
PACKAGES = [pattern for name in NAMES for pattern in (name, f"{name}.*")]


def conf_packages() -> dict[str, str]:
    """``conf/`` beside the package becomes ``verl_like.conf`` inside it, one package per folder of YAML files."""
    folders = {file.parent for file in Path("conf").rglob("*.yaml")}
    return {".".join(("verl_like", *folder.parts)): folder.as_posix() for folder in sorted(folders)}


setup(
    packages=[*find_packages(include=PACKAGES), *conf_packages()],
    package_dir=conf_packages(),
    package_data={
        "verl_like": ["py.typed"],
        "verl_like.report": ["assets/*", "assets/uplot/*"],
        "verl_like_graders": ["py.typed", "README.md"],
        "verl_like_environments": ["py.typed", "README.md"],
        "verl_like_migrate": ["py.typed", "README.md", "keys/*.yaml"],
        **{name: ["*.yaml"] for name in conf_packages()},
    },
)
