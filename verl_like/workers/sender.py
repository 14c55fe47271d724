"""The trainer's side of the meeting with engines in other processes."""

from __future__ import annotations

from verl_like.controller import rendezvous
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.workers.setup import WorkerSetup
from verl_like.workers.transfer import Meeting, TransferGroup, TransferSink, TransferStore


class SenderRole:
    """Connects the actor's sink with the engines; only the first rank sends.

    Args:
        sink: the sink of this rank's actor.
    """

    def __init__(self, setup: WorkerSetup, sink: TransferSink) -> None:
        self._setup, self._sink = setup, sink
        self._timeout_s = setup.config.trainer.stage_timeout_s
        self._store: TransferStore | None = None

    @dispatch(Dispatch.RANK_ZERO)
    def address(self) -> tuple[str, int]:
        """Return the host and the port at which engines meet this process."""
        if self._store is None:
            self._store = TransferStore(rendezvous.own_address(), timeout_s=self._timeout_s)
        return self._store.host, self._store.port

    @dispatch(Dispatch.BROADCAST)
    def join(self, meeting: Meeting) -> None:
        """Meet the engines. Later syncs go to them, and no longer to those of an earlier meeting."""
        if self._setup.rank == 0:
            self._sink.group = TransferGroup(meeting, rank=0, device=self._setup.device, timeout_s=self._timeout_s)
