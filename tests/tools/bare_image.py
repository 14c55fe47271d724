"""Build and run an image without Docker: execute a Dockerfile's instructions by chroot in a bare Debian.

Needs root, ``debootstrap`` and util-linux. Every command has its own mount and process namespace, as in a container:
when its first process ends, its mounts and all its processes end with it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

from tests.tools.dockerfile import SHELL, Image, Instruction, chain, context, parse

BUILD_TIMEOUT_S = 1800.0
CERTIFICATES = "/etc/certificates-of-the-host.crt"
NODES = ("null", "zero", "full", "random", "urandom", "tty")
SOURCES = """deb {mirror}/debian {suite} main
deb {mirror}/debian {suite}-updates main
deb {mirror}/debian-security {suite}-security main
"""
MIRROR = "http://deb.debian.org"
# $1 the root, $2 the size of /dev/shm, then SOURCE TARGET MODE of each mount, then --, then the command.
ENTER = """
root=$1; shm=$2; shift 2
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in NODES; do touch "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"; done
ln -s /proc/self/fd "$root/dev/fd"; ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"; ln -s /proc/self/fd/2 "$root/dev/stderr"
mkdir "$root/dev/shm"; mount -t tmpfs -o "mode=1777,size=$shm" tmpfs "$root/dev/shm"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"; mount --bind "$1" "$root$2"; [ "$3" = rw ] || mount -o "remount,bind,$3" "$root$2"; shift 3
done
shift
exec "$@"
""".replace("NODES", " ".join(NODES))


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host, used as a volume."""

    source: Path
    target: str
    mode: str = "rw"


@dataclass(slots=True)
class BareImage:
    """A folder with the files of an image, and the image's configuration.

    Args:
        root: the folder; new or empty.
        log: called with each instruction before it is executed.
    """

    root: Path
    log: Callable[[str], None]
    image: Image = field(default_factory=Image)

    def build(self, dockerfile: Path, folder: Path, *, target: str, arguments: Mapping[str, str]) -> None:
        """Do the same as ``docker build -f DOCKERFILE --target TARGET FOLDER``.

        Raises:
            ValueError: this cannot be executed here.
            subprocess.CalledProcessError: a RUN failed.
        """
        base, instructions = chain(parse(dockerfile.read_text()), target)
        ignored = dockerfile.with_name(f"{dockerfile.name}.dockerignore").read_text().split()
        self._debootstrap(base)
        environment, mounts = network_settings(self.root)
        for instruction in instructions:
            self.log(f"line {instruction.line}: {instruction}")
            if instruction.word == "FROM":
                self.image.arguments = {}
            elif instruction.word == "RUN":
                values = environment | self.image.arguments | self.image.environment
                command = self.command([*SHELL, instruction.value], environment=values, mounts=mounts)
                run(command, timeout_s=BUILD_TIMEOUT_S)
            elif instruction.word == "COPY":
                self._copy(instruction, folder, ignored)
            else:
                self.image.take(instruction, arguments)
                if instruction.word == "WORKDIR":
                    self.path(self.image.workdir).mkdir(parents=True, exist_ok=True)

    def command(
        self,
        words: list[str],
        *,
        environment: Mapping[str, str] | None = None,
        user: str = "",
        mounts: list[Mount] | None = None,
        shm_size: str = "64m",
    ) -> list[str]:
        """Return the command line that runs ``words`` in the image; /dev/shm has 64 MiB by default, as in Docker."""
        values = self.image.environment if environment is None else environment
        user = user or self.image.user
        uid, gid, home = self._account(user)
        values = {"HOME": home, **values}
        inside = [
            *("chroot", f"--userspec={uid}:{gid}", f"--groups={gid}", str(self.root)),
            *("/usr/bin/env", "-i", "-C", self.image.workdir, *(f"{name}={value}" for name, value in values.items())),
            *words,
        ]
        mounted = [word for mount in mounts or [] for word in (str(mount.source), mount.target, mount.mode)]
        apart = ["unshare", "--mount", "--pid", "--fork", "--", "bash", "-euc", ENTER, "bash"]
        return [*apart, str(self.root), shm_size, *mounted, "--", *inside]

    def path(self, inside: str) -> Path:
        """Return the path on the host of a file of the image."""
        return self.root / inside.lstrip("/")

    def volume(self, source: Path, target: str, mode: str = "rw") -> Mount:
        """Create a volume with the owner and mode of the image's folder at ``target``."""
        if not source.exists():
            source.mkdir(parents=True)
            there = self.path(target).stat()
            os.chown(source, there.st_uid, there.st_gid)
            source.chmod(there.st_mode & 0o7777)
        return Mount(source, target, mode)

    def remove(self) -> None:
        """Remove the files; fail if something is mounted below them, because its files would be removed too."""
        assert f" {self.root}/" not in Path("/proc/self/mountinfo").read_text(), f"something is mounted in {self.root}"
        subprocess.run(["rm", "-rf", "--one-file-system", str(self.root)], check=True)

    def _debootstrap(self, base: str) -> None:
        match = re.fullmatch(r"debian:(\w+)-slim", base)
        if match is None:
            raise ValueError(f"found FROM {base}, expected debian:SUITE-slim, which debootstrap can make here.")
        self.log(f"debootstrap {match[1]}, for {base}")
        words = ["debootstrap", "--variant=minbase", match[1], str(self.root), f"{MIRROR}/debian"]
        # debootstrap mounts /proc and /sys there; the mounts end with the namespace.
        subprocess.run(
            ["unshare", "--mount", "--", *words], check=True, timeout=BUILD_TIMEOUT_S, stdout=subprocess.DEVNULL
        )
        self.path("/etc/apt/sources.list").write_text(SOURCES.format(mirror=MIRROR, suite=match[1]))

    def _copy(self, instruction: Instruction, folder: Path, ignored: list[str]) -> None:
        *sources, target = self.image.expanded(instruction.value).split()
        uid, gid, _ = self._account(instruction.flags.get("chown", "root"))
        into = self.path(os.path.normpath(os.path.join(self.image.workdir, target)))
        files = list(context(folder, ignored))
        for source in sources:
            below = [file for file in files if file.is_relative_to(source)]
            if not below:
                raise ValueError(f"line {instruction.line}: found nothing to copy at {source} that is not ignored.")
            for file in below:
                is_renamed = file == Path(source) and not target.endswith(("/", "."))
                inside = file.name if file == Path(source) else file.relative_to(source)
                copy = into if is_renamed else into / inside
                made = [parent for parent in copy.parents if not parent.exists()]
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / file, copy, follow_symlinks=False)
                for new in (*made, copy):
                    os.chown(new, uid, gid, follow_symlinks=False)

    def _account(self, user: str) -> tuple[int, int, str]:
        """Return (uid, gid, home) of ``NAME``, ``UID``, ``NAME:GROUP`` or ``UID:GID``, from the image's /etc/passwd."""
        name, _, group = user.partition(":")
        lines = [line.split(":") for line in self.path("/etc/passwd").read_text().splitlines()]
        known = {line[0]: line for line in lines} | {line[2]: line for line in lines}
        if name not in known and not name.isdigit():
            raise ValueError(f"found user {name}, which the image lacks. Add it by RUN useradd.")
        uid, gid, home = (
            (int(known[name][2]), int(known[name][3]), known[name][5]) if name in known else (int(name), 0, "/")
        )
        return uid, int(group) if group.isdigit() else gid, home


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command of ``BareImage.command``; at the end, kill its namespace with all processes in it."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                # unshare's --kill-child does not survive the change of user: the kernel then clears that signal.
                os.kill(first_process(process), signal.SIGKILL)


def first_process(process: subprocess.Popen[bytes]) -> int:
    """Return the host's id of process 1 in the namespace of a running command; it is unshare's only child."""
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def run(command: list[str], *, timeout_s: float) -> None:
    """Run a command of ``BareImage.command`` to its end.

    Raises:
        subprocess.SubprocessError: it failed, or took longer.
    """
    with started(command) as process:
        status = process.wait(timeout_s)
    if status:
        raise subprocess.CalledProcessError(status, command[-3:])


def network_settings(root: Path) -> tuple[dict[str, str], list[Mount]]:
    """Return variables and mounts with which the image reaches the network and pip's indexes as the host does.

    Docker copies /etc/hosts and /etc/resolv.conf too; pip's configuration belongs to the host, not to the image.
    """
    for name in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf"):
        if Path(name).exists():
            shutil.copyfile(name, root / name.lstrip("/"))
    variables = {name: value for name, value in os.environ.items() if re.match(r"PIP_|https?_proxy$|no_proxy$", name)}
    bundle = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    if bundle and Path(bundle).is_file():
        shutil.copyfile(bundle, root / CERTIFICATES.lstrip("/"))
        variables |= {"PIP_CERT": CERTIFICATES, "SSL_CERT_FILE": CERTIFICATES}
    settings = Path("/etc/pip.conf").read_text() if Path("/etc/pip.conf").is_file() else ""
    words = " ".join([settings, *variables.values()]).split()
    paths = {Path(urlparse(word).path) for word in words if word.startswith(("/", "file:///"))}
    # A local index has its pages in the folder `simple` and the packages in a folder next to it.
    folders = {path.parent if path.name == "simple" else path for path in paths}
    return variables, [Mount(folder, str(folder), "ro") for folder in sorted(folders) if folder.is_dir()]
