"""Start the fork server of a run's workers, if possible before this process imports Ray, which takes a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from verl_like.backends.rollout import slowest_imports
from verl_like.checks.cpu_workers import shares_of
from verl_like.checks.gpus import gpus_here
from verl_like.config.schema import Config
from verl_like.controller.fork_server.start import fork_server, ray_is_running
from verl_like.machine.cores import usable_cores
from verl_like.workers.environment import worker_environment


class Forks:
    """Starts a fork server before it is needed."""

    def __init__(self) -> None:
        self._offered: tuple[ExitStack, Mapping[str, str]] | None = None

    @contextmanager
    def starting(self, config: Config, *, generates: bool) -> Iterator[None]:
        """Start a server now, for the first call of :meth:`started`; end it on exit if no call was made.

        Args:
            generates: whether workers will have rollout engines.
        """
        with ExitStack() as begun:
            self._offered = begun, begun.enter_context(_fork_server(config, generates=generates))
            try:
                yield
            finally:
                self._offered = None

    @contextmanager
    def started(self, config: Config, *, generates: bool) -> Iterator[Mapping[str, str]]:
        """Give the variables of workers of the server that was started already, or of a new one; end it on exit.

        Without a server there are no variables.
        """
        if self._offered is None:
            with _fork_server(config, generates=generates) as variables:
                yield variables
            return
        (begun, variables), self._offered = self._offered, None
        with begun.pop_all():
            yield variables


@contextmanager
def _fork_server(config: Config, *, generates: bool) -> Iterator[Mapping[str, str]]:
    """Start a server if all workers will be on the CPUs of this machine, in a Ray that this process starts.

    A process that has initialised CUDA cannot be forked, and a library may do that when it is imported.
    """
    if config.cluster.address or ray_is_running() or gpus_here().runs_on_gpu(config) is not False:
        yield {}
        return
    environment = worker_environment(config, "cpu", num_threads=shares_of(config, usable_cores()).threads)
    backend = config.rollout.backend if generates else ""
    with fork_server(
        environment,
        calls=[[module] for module in slowest_imports(backend)],
        calls_with_ray=[["verl_like.controller.worker"], ["verl_like.workers.hybrid:load_libraries", backend]],
    ) as variables:
        yield variables
