"""A small run of the real stack, observed from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests._left_behind import leaked_shared_memory, still_running
from verl_like.telemetry.heartbeat import Reading, read_all

ROOT = Path(__file__).parents[2]
INJECTED = Path(__file__).parent / "injected"
SHARED_MEMORY = Path("/dev/shm")
START_S = 150.0  # from the start of a run to its fault
STALL_AFTER_S = 4.0
STEPS = 4

OWN_SHM = 'unshare|-m|sh|-c|mount -t tmpfs -o size={}m tmpfs /dev/shm && exec "$@"|sh'
REWARD = """
def digits(data_source, solution_str, ground_truth, extra_info):
    return solution_str.count("7") / max(len(solution_str), 1)
"""


def make_data(folder: Path) -> Path:
    """Write rows, a model of two layers with random weights, and a reward that it sometimes earns."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from recipes.arithmetic.model import character_tokenizer
    from recipes.arithmetic.prepare import write_all

    folder.mkdir(parents=True, exist_ok=True)
    write_all(folder, seed=0)
    tokenizer = character_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "reward.py").write_text(REWARD)
    return folder


def overrides(data: Path, out: Path, name: str) -> dict[str, str]:
    """Return the options of PPO with a critic and a reference, so that every stage exists, on two workers."""
    return {
        "algorithm": "ppo",
        "algorithm.kl_coef": "0.01",
        "data.train_files": f"[{data}/train.parquet]",
        "data.val_files": f"[{data}/val.parquet]",
        "data.train_batch_size": "8",
        "data.apply_chat_template": "false",
        "data.max_prompt_length": "8",
        "data.max_response_length": "6",
        "model.path": f"{data}/model",
        "actor.mini_batch_size": "8",
        "actor.optim.lr": "1e-3",
        "critic.mini_batch_size": "8",
        "rollout.n": "4",
        "rollout.kv_cache_memory_gib": "0.05",
        "rollout.max_num_seqs": "64",
        "rollout.block_kib": "0",
        "trainer.val_before_train": "false",
        "trainer.test_freq": "2",
        "trainer.save_freq": "1",
        "trainer.total_training_steps": str(STEPS),
        "trainer.output_dir": str(out),
        "trainer.experiment_name": name,
        "trainer.loggers": "[jsonl]",
        "trainer.stage_timeout_s": "50",
        "trainer.stall_after_s": str(STALL_AFTER_S),
        "trainer.num_samples_to_save": "4",
        "trainer.max_checkpoints": "9",
        "reward.function": f"{data}/reward.py:digits",
        "reward.timeout_s": "5",
        "cluster.device": "cpu",
        "cluster.workers_per_node": "2",
        "cluster.object_store_memory_gib": "0.25",
    }


@dataclass
class Run:
    """A run started as a user starts it, in its own process group."""

    folder: Path
    process: subprocess.Popen[bytes]
    log: Path
    started: float
    names_before: set[str]
    members: dict[int, psutil.Process] = field(default_factory=dict)

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def record_processes(self) -> None:
        """Add the run's current processes to ``members``."""
        try:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                self.members.setdefault(process.pid, process)
        except psutil.NoSuchProcess:
            pass

    def readings(self) -> dict[str, Reading]:
        """Return the heartbeats of the run's processes, by their names."""
        found: dict[str, Reading] = {}
        for folder in SHARED_MEMORY.glob("verl_like-*"):
            for reading in read_all(folder):
                if reading.pid == self.process.pid or reading.pid in self.members:
                    found[reading.who] = reading
        return found

    def wait_until(self, what: str, is_so: Callable[[], bool], timeout_s: float = START_S) -> None:
        deadline = time.monotonic() + timeout_s
        recorded_at = 0.0
        while True:
            if time.monotonic() - recorded_at > 0.5:
                self.record_processes()
                recorded_at = time.monotonic()
            if is_so():
                return
            assert self.process.poll() is None, f"the run ended before {what}:\n{self.output[-3000:]}"
            assert time.monotonic() < deadline, (
                f"{what} did not happen within {timeout_s:.0f} s:\n{self.output[-3000:]}"
            )
            time.sleep(0.002)

    def steps(self) -> list[int]:
        path = self.folder / "metrics.jsonl"
        return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []

    def pids_of(self, *parts: str) -> list[int]:
        """Return the processes of the run whose command lines or titles contain all of these words."""
        self.record_processes()
        found = []
        for process in self.members.values():
            try:
                line = " ".join([process.name(), *process.cmdline()])
                if all(part in line for part in parts) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
            except psutil.NoSuchProcess:
                continue
        return found

    def scorers(self) -> list[int]:
        """Return the scorer processes without their subreapers, sorted by the start of their subreapers."""
        found = self.pids_of("verl_like.reward.scorer_main")
        subreapers = {pid: self.members[pid].ppid() for pid in found}
        return sorted((pid for pid in found if subreapers[pid] in found), key=lambda pid: subreapers[pid])

    def ended(self, timeout_s: float) -> int | None:
        """Wait for the run's end; return the exit status, or None after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None and time.monotonic() < deadline:
            self.record_processes()
            time.sleep(0.1)
        return self.process.poll()

    def survivors(self, timeout_s: float = 20.0) -> list[str]:
        """Return the members that still run ``timeout_s`` after the driver's end."""
        deadline = time.monotonic() + timeout_s
        while (found := still_running(list(self.members.values()))) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def leaked(self) -> set[str]:
        """Return new names in shared memory that no process uses."""
        return leaked_shared_memory(self.names_before)

    def end(self) -> None:
        """Kill every process of the run that still exists."""
        self.record_processes()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        for process in self.members.values():
            try:
                if process.is_running():
                    process.kill()
            except psutil.NoSuchProcess:
                continue


@contextmanager
def started(
    data: Path,
    out: Path,
    name: str,
    changes: dict[str, str],
    *,
    fault: str = "",
    sleep_s: float = 0.0,
    shm_mib: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Run]:
    """Start the command and yield the run; kill its processes at the end.

    Args:
        environment: variables added to those of this process.
        fault: the fault to inject, in the format of ``injected/sitecustomize.py``.
        shm_mib: size of a private /dev/shm of the run; 0 for the machine's.
    """
    words = [f"{key}={value}" for key, value in {**overrides(data, out, name), **changes}.items()]
    log = out / f"{name}.log"
    out.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, **(environment or {})}
    if fault:
        variables |= {
            "PYTHONPATH": f"{INJECTED}:{ROOT}",
            "VERL_LIKE_CHAOS": fault,
            "VERL_LIKE_CHAOS_FOLDER": str(out),
            "VERL_LIKE_CHAOS_SLEEP_S": str(sleep_s),
        }
    prefix = OWN_SHM.format(shm_mib).split("|") if shm_mib else []
    before = set(os.listdir(SHARED_MEMORY))
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "verl_like", "train", *words],
            cwd=ROOT,
            env=variables,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    run = Run(out / name, process, log, time.monotonic(), before)
    try:
        yield run
    finally:
        run.end()


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)
