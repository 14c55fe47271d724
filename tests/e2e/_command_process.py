"""One process in a checkout that runs its commands one after the other on one Ray cluster.

What a command imports, and starts Ray and workers for, takes half a minute; here it is done once. Imports nothing of
ours at the top: the checkout must come first on the path.
"""

import multiprocessing
import os
import runpy
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import patch

CLOSE_S = 60.0
ROOT = Path(__file__).parents[2]


class CommandProcess:
    """Runs ``verl-like ...`` and ``python -m MODULE ...`` as the shell would, from the folder ``checkout``."""

    def __init__(self, checkout: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, peer = context.Pipe()
        self._log = checkout / "commands.log"
        self._process = context.Process(target=_serve, args=(peer, str(checkout), str(self._log)))
        self._process.start()
        peer.close()

    def run(self, words: list[str], *, timeout_s: float) -> None:
        """Run one command; fails, with the end of what it said, where its exit status is not 0."""
        start = self._log.stat().st_size if self._log.exists() else 0
        self._connection.send(words)
        assert self._connection.poll(timeout_s), f"{words} took longer than {timeout_s:.0f} s"
        status = self._connection.recv()
        assert not status, f"{words} ended with {status}:\n{self._log.read_text()[start:][-6000:]}"

    def close(self) -> None:
        self._connection.close()
        self._process.join(CLOSE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(CLOSE_S)


def _serve(connection: Connection, checkout: str, log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.chdir(checkout)
    os.environ["PYTHONPATH"] = f"{checkout}:{ROOT}"  # these tests are not in the checkout
    sys.path.insert(0, checkout)

    from tests.e2e._kept_workers import kept_workers
    from verl_like.config.schema import ClusterConfig
    from verl_like.controller.placement import ray_cluster

    with ray_cluster(ClusterConfig(object_store_memory_gib=0.25), "commands"), kept_workers():
        while True:
            try:
                words = connection.recv()
            except EOFError:
                return
            connection.send(status_of(words))


def status_of(words: list[str]) -> object:
    """Run one command and return its exit status."""
    from verl_like.cli import main

    try:
        if words[0] == "verl-like":
            return main(words[1:])
        assert words[:2] == ["python", "-m"], words
        with patch.object(sys, "argv", words[2:]):
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code
    except Exception:  # noqa: BLE001  a border: reported as the command's end
        traceback.print_exc()
        return 1
    return 0
