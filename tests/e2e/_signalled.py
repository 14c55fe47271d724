"""A command of ours that a signal meets at a chosen moment: ``python -m tests.e2e._signalled MOMENT train key=value``.

MOMENT is ``SIGNAL@PLACE#COUNT+SECONDS``: the signal comes so many seconds (default 0) after the COUNT-th time (default
the first) that the driver comes to PLACE, which is a stage of its ledger (``update_actor``) or a function
(``verl_like.runs.checkpoint:publish``). The driver sends it to itself, and is otherwise as a user starts it.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any


class Moment:
    """When a signal comes."""

    def __init__(self, text: str) -> None:
        found = re.fullmatch(r"(SIG\w+)@([\w.:]+?)(?:#(\d+))?(?:\+([\d.]+))?", text)
        assert found is not None, f"{text} is no SIGNAL@PLACE#COUNT+SECONDS"
        self._signum, self.place = signal.Signals[found[1]], found[2]
        self._count, self._delay_s = int(found[3] or 1), float(found[4] or 0)

    def arrive(self) -> None:
        """Count a visit of the driver to this point."""
        self._count -= 1
        if self._count == 0 and self._delay_s:
            timer = threading.Timer(self._delay_s, self._send)
            timer.daemon = True
            timer.start()
        elif self._count == 0:
            self._send()

    def _send(self) -> None:
        os.kill(os.getpid(), self._signum)

    def set_up(self) -> None:
        from verl_like.telemetry.ledger import Ledger, Visit

        if ":" in self.place:
            module, _, names = self.place.partition(":")
            *owners, name = names.split(".")
            owner: Any = importlib.import_module(module)
            for each in owners:
                owner = getattr(owner, each)
            setattr(owner, name, self._reported(getattr(owner, name)))
            return
        entered = Ledger.enter

        def enter(ledger: Ledger, name: str, waits_for: str = "") -> Visit:
            visit = entered(ledger, name, waits_for)
            if name == self.place:
                self.arrive()
            return visit

        Ledger.enter = enter  # type: ignore[method-assign]

    def _reported(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def reported(*args: Any, **kwargs: Any) -> Any:
            self.arrive()
            return function(*args, **kwargs)

        return reported


if __name__ == "__main__":
    Moment(sys.argv[1]).set_up()
    from verl_like.cli import main

    sys.exit(main(sys.argv[2:]))
