"""Start the fork server of a run's workers, if possible before this process imports Ray, which takes a while."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from verl_like.backends.rollout import slowest_imports
from verl_like.checks.cpu_workers import shares_of
from verl_like.checks.gpus import gpus_here
from verl_like.config.schema import Config
from verl_like.controller.fork_server.server import is_compared
from verl_like.controller.fork_server.start import fork_server, ray_is_running
from verl_like.machine.cores import usable_cores
from verl_like.workers.environment import worker_environment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Server:
    """Parameters of a fork server. A server that runs fits a run if the parameters are equal.

    Args:
        environment: variables of its processes, those of this process included: a check may set one, as may a user's
            file that it imports.
        backend: backend of their rollout engines; empty without engines.
    """

    environment: Mapping[str, str]
    backend: str


@dataclass(frozen=True, slots=True)
class _Offer:
    """A server that runs already."""

    server: _Server
    variables: Mapping[str, str]
    begun: ExitStack  # ends it


class Forks:
    """Starts a fork server before it is needed."""

    def __init__(self) -> None:
        self._offer: _Offer | None = None

    @contextmanager
    def starting(self, config: Config, *, generates: bool) -> Iterator[None]:
        """Start a server now for the next call of :meth:`started`; end it on exit if it was not used.

        A server that was started earlier is kept if it fits this configuration too, and is ended otherwise.

        Args:
            config: may be unchecked; no server is started if the parameters cannot be computed from it.
            generates: whether workers will have rollout engines.
        """
        try:
            self._begin(_wanted(config, generates=generates))
        except Exception as error:
            log.debug("no early fork server: the checks or the start report why", exc_info=error)
        try:
            yield
        finally:
            self._end_offer()

    @contextmanager
    def started(self, config: Config, *, generates: bool) -> Iterator[Mapping[str, str]]:
        """Yield the variables that workers need to be forked by a server; end the server on exit.

        It is the server that was started already, if that fits, or a new one. A run that needs none gets no variables.
        """
        server = _wanted(config, generates=generates)
        if self._offer is not None and self._offer.server == server:
            offer, self._offer = self._offer, None
            with offer.begun:
                yield offer.variables
            return
        self._end_offer()
        if server is None:
            yield {}
            return
        with _running(server) as variables:
            yield variables

    def _begin(self, server: _Server | None) -> None:
        """Have exactly this server run."""
        if self._offer is not None and self._offer.server == server:
            return
        self._end_offer()
        if server is not None:
            begun = ExitStack()
            self._offer = _Offer(server, begun.enter_context(_running(server)), begun)

    def _end_offer(self) -> None:
        if self._offer is not None:
            self._offer.begun.close()
            self._offer = None


def _wanted(config: Config, *, generates: bool) -> _Server | None:
    """Return a server if all workers will be on the CPUs of this machine, in a Ray that this process starts.

    A process that has initialised CUDA cannot be forked, and a library may do that when it is imported.
    """
    if config.cluster.address or ray_is_running() or gpus_here().runs_on_gpu(config) is not False:
        return None
    own = {name: value for name, value in os.environ.items() if is_compared(name)}
    wanted = worker_environment(config, "cpu", num_threads=shares_of(config, usable_cores()).threads)
    return _Server({**own, **wanted}, config.rollout.backend if generates else "")


def _running(server: _Server) -> AbstractContextManager[Mapping[str, str]]:
    return fork_server(
        server.environment,
        calls=[[call] for call in slowest_imports(server.backend)],
        calls_with_ray=[["verl_like.controller.worker"], ["verl_like.workers.hybrid:load_libraries", server.backend]],
    )
