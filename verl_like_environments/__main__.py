"""Entry point: ``python FOLDER/verl_like_environments CONTROL LIFELINE PIPE LOG MAX_PRINTED``, in any interpreter.

The started process forks the nursery and becomes its subreaper. The arguments are file descriptors: of the socket of
packets, of a pipe whose other end the training process holds, of the pipe for standard output and error, and of the log
into which at most ``MAX_PRINTED`` bytes of that output are passed on.

The package is imported by its path, because the folder that contains it may hold packages of another interpreter.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from pathlib import Path

NAME = "verl_like_environments"
OLDEST = (3, 10)


def main() -> None:
    """Start the nursery; return in the nursery when the training process has closed the socket."""
    if sys.version_info < OLDEST:
        found, oldest = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST))
        sys.exit(f"{sys.executable} is Python {found}; environments need Python {oldest} or newer.")
    _import_package()
    from verl_like_environments.confined import end_with_parent, end_with_pipe
    from verl_like_environments.output import OutputFilter
    from verl_like_environments.subreaper import Subreaper, adopt_orphans

    control_fd, lifeline_fd, pipe_fd, log_fd, max_printed = map(int, sys.argv[1:])
    control = socket.socket(fileno=control_fd)
    subreaper_pid = os.getpid()
    adopt_orphans()
    if nursery_pid := os.fork():
        for fd in (1, 2):
            os.dup2(log_fd, fd)  # so that the pipe ends with the nursery and the processes it starts
        output = OutputFilter(pipe_fd, log_fd, max_printed=max_printed, name="an environment")

        def report(code: int) -> None:
            packet = {"nursery_ended": code, "last_output": output.last_output()}
            control.send(json.dumps(packet).encode(), socket.MSG_DONTWAIT)

        Subreaper(nursery_pid, lifeline_fd=lifeline_fd, output=output, report=report).run()
    os.setsid()  # a kill reaches the processes of the group, but not the subreaper
    end_with_parent(subreaper_pid)
    end_with_pipe(lifeline_fd)
    for fd in (pipe_fd, log_fd):
        os.close(fd)
    for fd in (control_fd, lifeline_fd):
        os.set_inheritable(fd, False)
    from verl_like_environments.nursery import Nursery

    Nursery(control).run()


def _import_package() -> None:
    folder = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != folder]
    spec = importlib.util.spec_from_file_location(
        NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None, f"{folder} is no package"
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main()
