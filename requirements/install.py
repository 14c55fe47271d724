"""Install a lock into the environment of this Python, in stages; a second start skips the stages that are done.

.venv/bin/python -m requirements.install cpu [--torch-index URL]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from verl_like.machine.capacity import SPACE, space_needed
from verl_like.machine.findings import Status
from verl_like.machine.packages import TORCHVISION_FOLDER
from verl_like.machine.probes import disk

HERE = Path(__file__).parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
STAGE_PACKAGES = 24
HASHED_PYTHONS = ((3, 11), (3, 12), (3, 13))  # on x86-64 Linux; as in make_lock.py
LOOK_UP_TIMEOUT_S = 300
TICK_S = 1.0
LINE_EVERY_S = 15.0  # if the output is not a terminal
TAIL_LINES = 25
ASK_PIP = "It needs a package index that it can reach; `pip config list` shows which one it asks."


class Refused(Exception):
    """The installation cannot start or continue; the message says how to fix it."""


@dataclass(frozen=True, slots=True)
class Torch:
    """The build of torch to install."""

    requirement: str
    words: str  # for the user
    space: str  # key of SPACE
    options: tuple[str, ...] = ()


def main() -> int:
    """Install torch, then the lock; return 1 if pip fails, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("accelerator", choices=("cpu", "cuda"))
    parser.add_argument("--torch-index", default="", help="package index that has the CPU build of torch")
    parser.add_argument(
        "--no-hashes", action="store_true", help="accept files that differ from the lock's, from other indexes"
    )
    arguments = parser.parse_args()
    try:
        install(arguments.accelerator, torch_index=arguments.torch_index, checks_hashes=not arguments.no_hashes)
    except Refused as refused:
        sys.stderr.write(f"{refused}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped; `make setup` continues from here.\n")
        return 130
    return 0


def install(accelerator: str, *, torch_index: str, checks_hashes: bool = True) -> None:
    """Print what will be installed and the space it takes, then install it stage by stage.

    Args:
        checks_hashes: refuse files other than the lock's, on the Pythons for which it has hashes.
    """
    venv = Path(sys.prefix)
    remove_unfinished(Path(sysconfig.get_path("purelib")))
    lock = HERE / f"{accelerator}.lock"
    torch = torch_build(accelerator, torch_index=torch_index)
    pins = pins_of(lock)
    to_do = [pin for pin in pins if not is_installed(pin)]
    stages = [to_do[first : first + STAGE_PACKAGES] for first in range(0, len(to_do), STAGE_PACKAGES)]
    torch_stages = [] if is_installed(torch.requirement) else [torch]
    space = SPACE[torch.space]
    if checks_hashes and not has_hashes_for_this_python():
        say("note: the lock has no hashes for this Python or machine, so pip's downloads are not compared with them.")
        checks_hashes = False
    say(f"installing for {accelerator}: torch {torch.words}, then {len(pins)} packages of {lock.name}")
    if len(to_do) == len(pins) and torch_stages:
        say(f"about {space.installed:.0f} GiB on disk and {space.downloads:.0f} GiB to download: a few minutes")
    else:
        say(f"{len(pins) - len(to_do)} packages are already installed; {len(to_do)} are left")
    finding = disk(space_needed(space, venv))
    if finding.status is Status.MISSING:
        raise Refused(f"not enough disk space: {finding.value}. To continue, {finding.remedy}.")
    torchvision = missing_torchvision() if accelerator == "cpu" else []
    progress = Progress(total=len(to_do) + len(torch_stages) + len(torchvision), log=venv / "setup.log")
    with progress:
        for _ in torch_stages:
            progress.run([*PIP, "install", *torch.options, torch.requirement], packages=1)
        for stage in stages:
            with written(locked(lock, stage) if checks_hashes else "\n".join(stage)) as file:
                hashes = ["--require-hashes"] if checks_hashes else []
                progress.run([*PIP, "install", "--no-deps", *hashes, "-r", str(file)], packages=len(stage))
        for pin in torchvision:
            folder, lock = Path(sys.prefix) / TORCHVISION_FOLDER, HERE / "cuda.lock"
            shutil.rmtree(folder, ignore_errors=True)
            with written(locked(lock, [pin]) if checks_hashes else pin) as file:
                target = ["--target", str(folder), *["--require-hashes"] * checks_hashes]
                progress.run([*PIP, "install", "--no-deps", *target, "-r", str(file)], packages=1)


def missing_torchvision() -> list[str]:
    """Return the pin of the torchvision that models of pictures need without a GPU; none if it is installed.

    It is that of the lock for CUDA, because the package index has no other build, in a folder where only runs find it.
    """
    folder = Path(sys.prefix) / TORCHVISION_FOLDER
    pins = [pin for pin in pins_of(HERE / "cuda.lock") if pin.startswith("torchvision==")]
    return [pin for pin in pins if not (folder / f"{pin.replace('==', '-')}.dist-info/RECORD").is_file()]


def torch_build(accelerator: str, *, torch_index: str) -> Torch:
    """Return the build of torch that fits the accelerator, of those that pip can reach; nothing is downloaded."""
    version = next(pin for pin in pins_of(HERE / "base.in") if pin.startswith("torch==")).partition("==")[2]
    if accelerator == "cuda":
        # `===` refuses a +cpu build, which pip prefers if it finds one.
        return Torch(f"torch==={version}", f"{version} for CUDA", "cuda", ("--no-deps",))
    cpu = Torch(f"torch=={version}+cpu", f"{version}, CPU build", "cpu", ("--no-deps",))
    if is_installed(cpu.requirement):
        return cpu
    index = ("--index-url", torch_index) if torch_index else ()
    found = reachable_versions("torch", index)
    if f"{version}+cpu" in found:
        return Torch(cpu.requirement, cpu.words, cpu.space, (*cpu.options, *index))
    here = f"for Python {sys.version_info.major}.{sys.version_info.minor}, but {', '.join(found[:5]) or 'none at all'}"
    if torch_index:
        raise Refused(
            f"pip finds no torch {version}+cpu at TORCH_INDEX={torch_index} {here}. PyTorch's installation page names "
            "the index (choose Linux, Pip, CPU); without TORCH_INDEX= the CUDA build is taken, which runs here too."
        )
    if version not in found:
        raise Refused(f"pip finds no torch {version} {here}. {ASK_PIP}")
    cpu_space, cuda_space = SPACE["cpu"], SPACE["cpu, CUDA build of torch"]
    say(
        f"note: this machine has no GPU, but pip finds only the CUDA build of torch {version}. It runs on the CPU too "
        f"and takes {cuda_space.installed:.0f} GiB instead of {cpu_space.installed:.0f}.\n"
        "      For the CPU build: make setup TORCH_INDEX=URL, with the index that PyTorch's installation page names "
        "for Linux, Pip, CPU."
    )
    # The lock for CPU has no NVIDIA libraries; other dependencies get the lock's versions.
    constraints = ("--constraint", str(_constraints()))
    return Torch(f"torch=={version}", f"{version}, CUDA build", "cpu, CUDA build of torch", constraints)


def _constraints() -> Path:
    """Write the pins of the lock for CPU without hashes; with hashes, pip would require one for torch too."""
    file = Path(sys.prefix) / "setup-constraints.txt"
    file.write_text("\n".join(pins_of(HERE / "cpu.lock")) + "\n")
    return file


def reachable_versions(package: str, options: tuple[str, ...]) -> list[str]:
    """Return the versions of ``package`` that pip would consider for this Python, without downloading it."""
    command = [*PIP, "index", "versions", package, *options]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=LOOK_UP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as expired:
        raise Refused(
            f"`pip index versions {package}` took more than {LOOK_UP_TIMEOUT_S} s. Is the network slow?"
        ) from expired
    if listing.returncode != 0 and "No matching distribution" not in listing.stderr:
        reason = "\n".join(line for line in listing.stderr.splitlines() if line.startswith("ERROR")) or listing.stderr
        raise Refused(f"pip cannot search for {package}: {reason}\n{ASK_PIP}")
    match = re.search(r"^Available versions: (.*)$", listing.stdout, re.MULTILINE)
    return match.group(1).split(", ") if match else []


def pins_of(file: Path) -> list[str]:
    """Return the lines of the form package==version, without the hashes that follow them."""
    lines = (line.removesuffix("\\").strip() for line in file.read_text().splitlines())
    return [line for line in lines if "==" in line and not line.startswith("#")]


def locked(file: Path, pins: Sequence[str]) -> str:
    """Return the lines of a lock that pin these, with their hashes."""
    entries = re.split(r"(?<!\\)\n", file.read_text())
    return "\n".join(entry for entry in entries if entry.partition("\\")[0].strip() in pins) + "\n"


def has_hashes_for_this_python() -> bool:
    """Return whether the locks know the files that pip chooses here."""
    return sys.version_info[:2] in HASHED_PYTHONS and platform.machine() == "x86_64" and sys.platform == "linux"


def is_installed(pin: str) -> bool:
    """Return whether the pinned version is installed; a pin without a build label takes any build, ``===`` none."""
    name, exact, wanted = re.fullmatch(r"(.+?)==(=?)(.+)", pin).groups()  # type: ignore[union-attr]
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return wanted == (found if exact or "+" in wanted else found.partition("+")[0])


def remove_unfinished(site: Path) -> list[str]:
    """Remove packages whose installation was interrupted, so that pip installs them again; return their names.

    pip writes RECORD last (23.0 to 26.3); without it a package looks installed, but files may be missing.
    """
    unfinished = [folder for folder in site.glob("*.dist-info") if not (folder / "RECORD").is_file()]
    for folder in [*unfinished, *site.glob("~*")]:  # pip moves the old files of a package to ~*
        if folder.is_dir():
            shutil.rmtree(folder)
        else:
            folder.unlink()
    return sorted(folder.name.partition("-")[0] for folder in unfinished)


@contextmanager
def written(text: str) -> Iterator[Path]:
    """Yield a temporary file with this text."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(text)
        yield file


def say(text: str) -> None:
    """Print now, also into a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Progress:
    """Runs pip, writes its output to a file and prints the progress periodically."""

    def __init__(self, *, total: int, log: Path) -> None:
        self._total, self._log = total, log
        self._done = self._seen = 0
        self._doing = ""
        self._started = time.monotonic()
        self._is_terminal = sys.stdout.isatty()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> Progress:
        self._log.write_text("")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._is_terminal:
            sys.stdout.write("\r\x1b[K")
        if kind is None and self._total:
            say(f"installed {self._total} packages in {self._seconds()}; the output of pip is in {self._log}")

    def run(self, command: list[str], *, packages: int) -> None:
        """Run one pip command that installs ``packages`` packages.

        Raises:
            Refused: it failed; the message ends with its last lines.
        """
        self._seen = 0
        tail: list[str] = []
        with (
            self._log.open("a") as log,
            subprocess.Popen(
                [*command, "--progress-bar", "off"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            ) as pip,
        ):
            assert pip.stdout is not None, "stdout was requested"
            for line in pip.stdout:
                log.write(line)
                tail = [*tail, line.rstrip()][-TAIL_LINES:]
                self._follow(line, packages)
        if pip.returncode != 0:
            shown = "\n".join(tail)
            raise Refused(
                f"pip failed with exit status {pip.returncode}; its whole output is in {self._log} and "
                f"ends with:\n{shown}\nInstalled packages stay; once this is fixed, `make setup` continues from here."
            )
        self._done += packages

    def _follow(self, line: str, packages: int) -> None:
        """Update the progress from a line of pip's output."""
        words = line.split()
        if line.startswith(("Collecting ", "Processing ")):
            self._seen = min(self._seen + 1, packages)
            self._doing = f"getting {Path(words[1]).name}"
        elif line.startswith("  Downloading "):
            self._doing = f"downloading {words[1].partition('-')[0]} {' '.join(words[2:])}"
        elif line.startswith("Building wheel"):
            self._doing = "building a wheel"
        elif line.startswith("Installing collected packages"):
            self._doing = f"unpacking {len(words) - 3} packages"

    def _report(self) -> None:
        for text in self._lines():
            if self._is_terminal:
                sys.stdout.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
                sys.stdout.flush()
            else:
                say(text)

    def _lines(self) -> Iterator[str]:
        while not self._ended.wait(TICK_S if self._is_terminal else LINE_EVERY_S):
            count = min(self._done + self._seen, self._total)
            yield f"  {count} of {self._total} packages, {self._seconds()}: {self._doing}"

    def _seconds(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


if __name__ == "__main__":
    sys.exit(main())
