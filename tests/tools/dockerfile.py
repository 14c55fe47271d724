"""Parse a Dockerfile: its stages, and the configuration of a stage's image.

Supports the instructions of our Dockerfile and refuses all others, so that ``tests/tools/bare_image.py`` silently
skips none.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FLAGS = {
    "FROM": (),
    "ARG": (),
    "ENV": (),
    "RUN": (),
    "COPY": ("chown",),
    "USER": (),
    "WORKDIR": (),
    "VOLUME": (),
    "ENTRYPOINT": (),
    "CMD": (),
    "HEALTHCHECK": ("interval", "timeout", "start-period", "retries"),
}
SHELL = ("/bin/sh", "-c")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Instruction:
    """``COPY --chown=a:b x y`` in line 7 is ("COPY", {"chown": "a:b"}, "x y", 7)."""

    word: str
    flags: Mapping[str, str]
    value: str
    line: int

    def __str__(self) -> str:
        return f"{self.word} {' '.join(self.value.split())}"


@dataclass(frozen=True, slots=True)
class Stage:
    """A FROM and the instructions after it; ``base`` is an image or an earlier stage."""

    name: str
    base: str
    instructions: tuple[Instruction, ...]


@dataclass(slots=True)
class Image:
    """The configuration of an image without its files; commands are lists of words."""

    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    arguments: dict[str, str] = field(default_factory=dict)  # of the current stage only
    user: str = "root"
    workdir: str = "/"
    volumes: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)
    health_timeout_s: float = 30.0

    def take(self, instruction: Instruction, given: Mapping[str, str]) -> None:
        """Apply an instruction to the configuration; ``given`` are the arguments of the build."""
        word, value = instruction.word, instruction.value
        if word == "ARG":
            name, _, default = value.partition("=")
            self.arguments[name] = given.get(name, self.expanded(default))
        elif word == "ENV":
            before = self.environment | {}
            for pair in shlex.split(value):
                name, _, text = pair.partition("=")
                self.environment[name] = expanded(text, self.arguments | before)
        elif word == "USER":
            self.user = value
        elif word == "WORKDIR":
            self.workdir = self.expanded(value)
        elif word == "VOLUME":
            self.volumes += words_of(value) if value.startswith("[") else value.split()
        elif word == "ENTRYPOINT":
            self.entrypoint, self.command = words_of(value), []
        elif word == "CMD":
            self.command = words_of(value)
        elif word == "HEALTHCHECK":
            self.healthcheck = words_of(value.removeprefix("CMD").strip())
            self.health_timeout_s = seconds(instruction.flags.get("timeout", "30s"))

    def expanded(self, text: str) -> str:
        return expanded(text, self.arguments | self.environment)


def parse(text: str) -> list[Stage]:
    """Return the stages of a Dockerfile.

    Raises:
        ValueError: an instruction or flag is not supported.
    """
    stages: list[Stage] = []
    found: list[Instruction] = []
    for number, line in _joined(text):
        instruction = _instruction(line, number)
        if instruction.word == "FROM":
            match = re.fullmatch(r"(\S+) AS (\w+)", instruction.value)
            if match is None:
                raise ValueError(
                    f"line {number}: found {instruction}, expected FROM IMAGE AS NAME. Give the stage a name."
                )
            found = []
            stages.append(Stage(match[2], match[1], ()))
        elif not stages:
            raise ValueError(f"line {number}: found {instruction.word} before the first FROM. Move it below.")
        found.append(instruction)
        stages[-1] = Stage(stages[-1].name, stages[-1].base, tuple(found))
    return stages


def chain(stages: list[Stage], target: str) -> tuple[str, list[Instruction]]:
    """Return the base image of ``target``, and all instructions from it to the target."""
    by_name = {stage.name: stage for stage in stages}
    if target not in by_name:
        raise ValueError(f"found no stage {target}, but {', '.join(by_name)}. Name one of these.")
    instructions: list[Instruction] = []
    while target in by_name:
        stage = by_name[target]
        instructions = [*stage.instructions, *instructions]
        target = stage.base
    return target, instructions


def words_of(value: str) -> list[str]:
    """Return the command of an instruction: a JSON list unchanged, anything else wrapped in a shell."""
    if not value.startswith("["):
        return [*SHELL, value]
    words = json.loads(value)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f'found {value}, expected a list of strings in double quotes, like ["verl-like", "doctor"].')
    return words


def seconds(text: str) -> float:
    """Parse ``90s``, ``2m`` or ``1h``."""
    match = re.fullmatch(r"([\d.]+)([smh])", text)
    if match is None:
        raise ValueError(f"found {text}, expected a time like 90s or 2m.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Replace ``$NAME`` and ``${NAME}``; a name without a value becomes empty, as in Docker."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda match: values.get(match[1] or match[2], ""), text)


def context(folder: Path, ignored: list[str]) -> Iterator[Path]:
    """Yield the files and links of a build context, relative to ``folder``, without those that .dockerignore lists."""
    for path in sorted(folder.iterdir()):
        yield from _seen(path, folder, ignored)


def _seen(path: Path, folder: Path, ignored: list[str]) -> Iterator[Path]:
    name = path.relative_to(folder).as_posix()
    if any(_is_ignored(name, pattern) for pattern in ignored):
        return
    if path.is_symlink() or not path.is_dir():
        yield Path(name)
        return
    for below in sorted(path.iterdir()):
        yield from _seen(below, folder, ignored)


def _is_ignored(name: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatch(name.rpartition("/")[2], pattern.removeprefix("**/"))
    return name.count("/") == pattern.count("/") and fnmatch.fnmatch(name, pattern)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield each instruction with the number of its first line, without comments and with continued lines joined."""
    held, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        first = first if held else number
        held += line.rstrip()
        if held.endswith("\\"):
            held = held[:-1]
            continue
        yield first, held.strip()
        held = ""


def _instruction(line: str, number: int) -> Instruction:
    word, _, value = line.partition(" ")
    if word not in FLAGS:
        raise ValueError(
            f"line {number}: found {word}, expected one of {', '.join(FLAGS)}. Add it to tests/tools/dockerfile.py."
        )
    flags: dict[str, str] = {}
    while match := re.match(r"\s*--([\w-]+)=(\S+)\s+", value):
        if match[1] not in FLAGS[word]:
            raise ValueError(f"line {number}: found --{match[1]} of {word}. Add it to tests/tools/dockerfile.py.")
        flags[match[1]] = match[2]
        value = value[match.end() :]
    if "<<" in value:
        raise ValueError(f"line {number}: found a here-document. Write the lines with \\ and && instead.")
    return Instruction(word, flags, value.strip(), number)
