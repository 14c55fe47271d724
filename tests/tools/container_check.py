"""``make container-check``: build docker/Dockerfile's target cpu and run the services of docker/compose.yaml.

Needs no Docker: ``tests/tools/bare_image.py`` builds the image in a bare Debian and runs its commands. Needs root,
debootstrap, 5 GiB of disk and about eight minutes. Option: --folder, for all files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.tools.bare_image import BareImage, Mount, first_process, run, started
from tests.tools.dockerfile import seconds

ROOT = Path(__file__).parents[2]
COMMAND_TIMEOUT_S = 600.0
SERVICE_TIMEOUT_S = 90.0
UNKNOWN_USER = "4321:4321"  # has no line in /etc/passwd
WRITES = "touch /cache/by-unknown-user /app/outputs/by-unknown-user && verl-like doctor"


class Checks:
    """The checks of a built image, one method each; ``outcomes`` has a line for each check that ran."""

    def __init__(self, bare: BareImage, folder: Path) -> None:
        self._bare, self._folder = bare, folder
        self._services: dict[str, Any] = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
        self.outcomes: list[tuple[str, str, float]] = []

    def run(self, what: str, check: Callable[[], str]) -> None:
        """Run a check and record its outcome; a failure does not stop the others."""
        started = time.monotonic()
        print(f"== {what}", flush=True)
        try:
            outcome = check()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            outcome = f"FAILED: {error}"
        self.outcomes.append((what, outcome, time.monotonic() - started))

    def default_command(self) -> str:
        image = self._bare.image
        self._run([*image.entrypoint, *image.command], shm_size="2g")
        return f"{' '.join([*image.entrypoint, *image.command])} as {image.user}"

    def healthcheck(self) -> str:
        image = self._bare.image
        started = time.monotonic()
        self._run(image.healthcheck, shm_size="2g")
        took = time.monotonic() - started
        assert took < image.health_timeout_s / 2, (
            f"it took {took:.1f} s, and its timeout is {image.health_timeout_s:.0f} s"
        )
        return f"{' '.join(image.healthcheck)} in {took:.1f} s"

    def another_user(self) -> str:
        volumes = [self._bare.volume(self._folder / f"strange{path}", path) for path in self._bare.image.volumes]
        self._run(["sh", "-c", WRITES], user=UNKNOWN_USER, mounts=volumes, shm_size="2g")
        return f"{UNKNOWN_USER} runs it and writes to {' and '.join(self._bare.image.volumes)}"

    def train(self) -> str:
        """Do the same as ``docker compose stop`` and ``up``: SIGTERM after the first steps, then the same command."""
        service = self._services["train"]
        words, mounts = [*service["entrypoint"], *service["command"]], self._volumes(service)
        outputs, size = self._folder / "outputs", service["shm_size"].removesuffix("b")
        with started(self._bare.command(words, mounts=mounts, shm_size=size)) as process:
            _wait(
                lambda: any(file.stat().st_size for file in outputs.rglob("grpo-*/metrics.jsonl")),
                process,
                COMMAND_TIMEOUT_S,
            )
            os.kill(first_process(process), signal.SIGTERM)
            status = process.wait(seconds(service["stop_grace_period"]))
        assert status == 0, f"after SIGTERM it ended with exit status {status}"
        stopped = [folder.name for folder in outputs.rglob("grpo-*/checkpoints/step_*")]
        assert stopped, "it wrote no checkpoint after SIGTERM"
        self._run(words, mounts=mounts, shm_size=size)
        assert any(outputs.rglob("grpo-*/model/model.safetensors")), "the second start did not reach the last step"
        owners = {path.stat().st_uid for path in outputs.rglob("*")}
        assert owners == {1000}, f"its files belong to users {owners}, expected 1000"
        return f"stopped at {max(stopped)}, continued to the end"

    def tensorboard(self) -> str:
        service = self._services["tensorboard"]
        mounts = self._volumes(service)
        words = [*service["entrypoint"], *service["command"]]
        with started(self._bare.command(words, mounts=mounts)) as process:
            _wait(lambda: self._is_healthy(service["healthcheck"]["test"][1:]), process, SERVICE_TIMEOUT_S)
            read = "import urllib.request as u; print(u.urlopen('http://localhost:6006/data/runs').read().decode())"
            command = self._bare.command(["python", "-c", read])
            runs = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout.strip()
        assert "grpo" in runs, f"it lists {runs}, expected the run of the service train"
        return f"healthy; lists {runs}"

    def _is_healthy(self, words: list[str]) -> bool:
        return subprocess.run(self._bare.command(words), timeout=60, capture_output=True, check=False).returncode == 0

    def _volumes(self, service: dict[str, Any]) -> list[Mount]:
        parts = [volume.split(":") for volume in service["volumes"]]
        return [self._bare.volume(self._folder / name, *rest) for name, *rest in parts]

    def _run(self, words: list[str], **options: Any) -> None:
        run(self._bare.command(words, **options), timeout_s=COMMAND_TIMEOUT_S)


def main() -> int:
    """Build, run all checks and print a table; return 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="make container-check", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp"), help="parent of a temporary folder for all files"
    )
    parser.add_argument("--build-arg", action="append", default=[], help="NAME=VALUE, as for docker build")
    options = parser.parse_args()
    lacking = [name for name in ("debootstrap", "unshare", "chroot") if shutil.which(name) is None]
    if os.geteuid() != 0 or lacking:
        print(
            f"found user {os.geteuid()}, and {' and '.join(lacking) or 'nothing'} missing; expected root with "
            "debootstrap, unshare and chroot. Run it as root, after apt-get install debootstrap util-linux coreutils.",
            file=sys.stderr,
        )
        return 2
    folder = Path(tempfile.mkdtemp(prefix="verl-like-image-", dir=options.folder))
    bare = BareImage(folder / "root", lambda text: print(f"== {text}", flush=True))
    checks = Checks(bare, folder)
    try:
        arguments = dict(word.split("=", 1) for word in options.build_arg)
        checks.run("build", lambda: build(bare, arguments))
        if not checks.outcomes[0][1].startswith("FAILED"):
            checks.run("command of the image", checks.default_command)
            checks.run("health check", checks.healthcheck)
            checks.run("another user", checks.another_user)
            checks.run("service train", checks.train)
            checks.run("service tensorboard", checks.tensorboard)
    finally:
        bare.remove()
        shutil.rmtree(folder)
    for what, outcome, seconds_taken in checks.outcomes:
        print(f"{what:<22} {seconds_taken:6.1f} s  {outcome}")
    return int(any(outcome.startswith("FAILED") for _, outcome, _ in checks.outcomes))


def build(bare: BareImage, arguments: dict[str, str]) -> str:
    """Build the target cpu and return its size."""
    bare.build(ROOT / "docker/Dockerfile", ROOT, target="cpu", arguments=arguments)
    assert bare.image.user != "root", "the image's user is root"
    size = subprocess.run(["du", "-sxm", str(bare.root)], check=True, capture_output=True, text=True).stdout.split()[0]
    return f"{int(size) / 1024:.1f} GiB"


def _wait(is_so: Callable[[], bool], process: subprocess.Popen[bytes], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert process.poll() is None, f"it ended with exit status {process.returncode}"
        assert time.monotonic() < deadline, f"it did not reach the expected state within {timeout_s:.0f} s"
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
