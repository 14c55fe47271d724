"""TRL's trainers, step by step, each in separate processes; ``make peers`` installs TRL."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Arguments of every configuration: on CPU in float32, and nothing but the steps.
PLAIN: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "ddp_find_unused_parameters": False,
    "max_steps": 10_000,
    "report_to": [],
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "seed": 0,
}


@contextmanager
def trl_steps(
    rank: int, ranks: int, port: int, make_trainer: Callable[[list[Any]], Any]
) -> Iterator[Callable[[], None]]:
    """Yield a function that takes one step of a trainer, which runs on a thread, on this rank's share of two cores.

    Args:
        port: where the ranks meet.
        make_trainer: returns the trainer with these callbacks.
    """
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": str(2 // ranks),
        "HF_HUB_OFFLINE": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    import torch
    from transformers import TrainerCallback

    torch.set_num_threads(2 // ranks)
    begin, end = threading.Semaphore(0), threading.Semaphore(0)

    class Turns(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            begin.acquire()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            end.release()

    thread = threading.Thread(target=make_trainer([Turns()]).train, daemon=True)
    thread.start()

    def step() -> None:
        begin.release()
        while not end.acquire(timeout=1):
            assert thread.is_alive(), "TRL's trainer has ended"

    yield step


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
