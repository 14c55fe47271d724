"""The scripts that start a training on several nodes: what they would run, and how they end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "recipes/cluster"
# A job of three nodes whose tasks run here.
SCONTROL = """#!/bin/sh
case "$1" in
  show) printf 'node1\\nnode2\\nnode3\\n' ;;
  *) echo "scontrol $*" >> "$CALLS" ;;
esac
"""
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do
  [ "$1" = --nodelist ] && shift
  shift
done
exec "$@"
"""
RAY = """#!/bin/sh
echo "ray $*" >> "$CALLS"
[ "$1" = start ] && exec sleep 60
exit 0
"""
DRIVER = """#!/bin/sh
echo "verl-like $*" >> "$CALLS"
trap 'echo "asked to end" >> "$CALLS"; exit 0' TERM
[ -n "$LASTS" ] || exit 3
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("script", ["ray.sh", "slurm.sh"])
def test_scripts_are_clean(script: str) -> None:
    tool = shutil.which("shellcheck")
    if tool is None:
        pytest.skip("shellcheck is not installed")
    found = subprocess.run([tool, SCRIPTS / script], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stdout


def dry(*words: str, **environment: str) -> list[str]:
    """Return the commands that a script would run."""
    found = subprocess.run(
        [SCRIPTS / words[0], *words[1:]],
        env={**os.environ, "DRY_RUN": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return found.stdout.splitlines()


def takes_all(line: str) -> bool:
    """Return whether this Ray knows all options of a ``ray start``."""
    from ray.scripts.scripts import start

    known = {option for parameter in start.params for option in parameter.opts}
    return {word.partition("=")[0] for word in line.split() if word.startswith("--")} <= known


@pytest.mark.processes
def test_ray_is_started_on_the_head_and_on_the_others() -> None:
    [head], [worker] = dry("ray.sh", "head", VENV="/v"), dry("ray.sh", "worker", "10.0.0.1", VENV="/v", PORT="7000")
    assert head.startswith("/v/bin/ray start --head --port 6379")
    assert worker.startswith("/v/bin/ray start --address 10.0.0.1:7000")
    assert takes_all(head) and takes_all(worker)


@pytest.mark.processes
@pytest.mark.parametrize("words", [[], ["worker"], ["tail"]])
def test_a_wrong_line_shows_how_it_is_used(words: list[str]) -> None:
    found = subprocess.run([SCRIPTS / "ray.sh", *words], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 2
    assert "recipes/cluster/ray.sh worker HEAD_ADDRESS" in found.stderr


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a Slurm job whose commands are recorded in a file."""
    for name, text in {"scontrol": SCONTROL, "srun": SRUN, "bin/ray": RAY, "bin/verl-like": DRIVER}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "VENV": str(tmp_path),
        "CALLS": str(tmp_path / "calls"),
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "node[1-3]",
        "SLURM_SUBMIT_DIR": str(ROOT),
        "LASTS": "1",
    }


@pytest.mark.processes
def test_a_job_starts_ray_on_its_nodes_and_the_driver_here(job: dict[str, str]) -> None:
    lines = dry("slurm.sh", "recipes/gsm8k/grpo.yaml", "rollout.n=16", **job)
    assert [line.split()[1] for line in lines if " ray start" in line.replace("/bin/ray", " ray")] == [
        "node1:",
        "node2:",
        "node3:",
    ]
    assert all(takes_all(line) for line in lines if "bin/ray start" in line)
    assert lines[-1].startswith(f"here: {job['VENV']}/bin/verl-like train recipes/gsm8k/grpo.yaml rollout.n=16")
    assert "cluster.address=node1:6379 cluster.num_nodes=3" in lines[-1]


@pytest.mark.processes
def test_a_job_that_must_end_saves_and_is_queued_again(job: dict[str, str]) -> None:
    calls = Path(job["CALLS"])
    script = subprocess.Popen([SCRIPTS / "slurm.sh", "recipe.yaml"], env=job, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while "verl-like train" not in (calls.read_text() if calls.exists() else ""):
            assert time.monotonic() < deadline, "the driver was not started"
            time.sleep(0.05)
        script.send_signal(signal.SIGTERM)
        assert script.wait(30) == 0
        reported = calls.read_text()
        assert "asked to end" in reported
        assert "scontrol requeue 17" in reported
        assert reported.count("ray start") == 3
    finally:
        try:
            os.killpg(script.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.mark.processes
def test_a_job_that_fails_is_not_queued_again(job: dict[str, str]) -> None:
    found = subprocess.run([SCRIPTS / "slurm.sh", "recipe.yaml"], env={**job, "LASTS": ""}, timeout=60, check=False)
    assert found.returncode == 3
    assert "requeue" not in Path(job["CALLS"]).read_text()


def test_the_kubernetes_job_has_as_many_nodes_as_its_training_expects() -> None:
    [job] = yaml.safe_load_all((SCRIPTS / "kubernetes.yaml").read_text())
    assert job["kind"] == "RayJob"
    spec = job["spec"]["rayClusterSpec"]
    num_nodes = 1 + sum(group["replicas"] for group in spec["workerGroupSpecs"])
    assert f"cluster.num_nodes={num_nodes}" in job["spec"]["entrypoint"]
    [container] = spec["headGroupSpec"]["template"]["spec"]["containers"]
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    assert container["workingDir"] == re.findall(r"^WORKDIR (.*)$", dockerfile, re.MULTILINE)[0]
    [uid] = re.findall(r"useradd --uid (\d+)", dockerfile)
    assert spec["headGroupSpec"]["template"]["spec"]["securityContext"]["fsGroup"] == int(uid)
    grace_s = int(re.findall(r"trainer.grace_s=(\d+)", job["spec"]["entrypoint"])[0])
    assert spec["headGroupSpec"]["template"]["spec"]["terminationGracePeriodSeconds"] > grace_s


def test_the_overrides_that_the_scripts_set_are_options() -> None:
    from verl_like.config.compose import compose

    words = {
        word for file in SCRIPTS.iterdir() for word in re.findall(r"\b(?:cluster|trainer)\.\w+(?==)", file.read_text())
    }
    assert words == {"cluster.address", "cluster.num_nodes", "trainer.grace_s", "trainer.output_dir"}
    compose(None, ["cluster.address=a", "cluster.num_nodes=2", "trainer.grace_s=60", "trainer.output_dir=o"])
