"""Count what no kernel limit counts for a single process: its threads, and the files in its folder.

The system call filter sends each request for a thread or a file to a listener, which is in the process that forked the
confined one. The call blocks until the request is answered, and fails once the listener is closed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from verl_like_graders.programs.confinement import Limits
from verl_like_graders.programs.system_calls import number

# linux/seccomp.h
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_REQUEST_BYTES = 80  # struct seccomp_notif: id, thread, flags, then the call's number and arguments
_CONTINUE = 1  # the call proceeds unchanged


class Supervisor:
    """Answers the requests of one confined process.

    Args:
        listener: from ``system_calls.restrict``; closed by :meth:`close`.
    """

    def __init__(self, listener: int, *, pid: int, folder: str, limits: Limits) -> None:
        self.listener = listener
        self._tasks, self._folder, self._limits = f"/proc/{pid}/task", folder, limits

    def answer(self) -> None:
        """Answer one request; call it when ``listener`` is readable."""
        request = bytearray(_REQUEST_BYTES)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, request)
            call_id, _, _, call_number = struct.unpack_from("QIIi", request)
            refusal = self._refusal(call_number)
            answer = (call_id, 0, -refusal, 0) if refusal else (call_id, 0, 0, _CONTINUE)
            fcntl.ioctl(self.listener, _SEND, struct.pack("QqiI", *answer))
        except OSError as error:
            if error.errno == errno.EINVAL:  # before Linux 5.5 a call cannot be continued
                fcntl.ioctl(self.listener, _SEND, struct.pack("QqiI", call_id, 0, -errno.EPERM, 0))
            elif error.errno not in (errno.ENOENT, errno.EINTR):  # the requesting thread is gone
                raise

    def close(self) -> None:
        os.close(self.listener)

    def _refusal(self, call_number: int) -> int:
        """Return the error number with which a call fails, or 0 if it may proceed."""
        try:
            if call_number == number("clone"):
                # A folder's link count is the number of its subfolders plus two.
                return errno.EAGAIN if os.stat(self._tasks).st_nlink - 2 >= self._limits.num_threads else 0
            return errno.EDQUOT if len(os.listdir(self._folder)) >= self._limits.num_kept_files else 0
        except OSError:  # the process is ending, or /proc shows nothing
            return errno.EAGAIN
