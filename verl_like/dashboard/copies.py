"""The files of a run in a remote folder, copied to this machine as they change."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from verl_like.call_threads import CallThreads, Check, NoAnswer
from verl_like.context import current
from verl_like.masking import masked_text
from verl_like.remote import RemoteFolder, unreadable_kind
from verl_like.runs.remote_run import COPIED

TIMEOUT_S = 60.0  # for one reading of the remote folder
# Files that a dashboard reads. The ledger, the trace and the samples are larger and are left out.
_WANTED = re.compile(r"config\.yaml|metrics\.jsonl|summary\.json|stalls/[^/]+/(verdict|stacks)\.txt")
_LOG = re.compile(r"logs/(\d+)/driver\.log")


class UnreadableCopy(Exception):
    """The remote folder could not be read; the message gives the reason."""


class RemoteCopy:
    """A folder of this machine with the newest files of a run below a URL; a context manager that removes it.

    Args:
        url: the run's folder in the store: ``trainer.remote_dir``, a slash, and the run's name.

    Raises:
        ValueError: no store can be opened at the URL.
    """

    def __init__(self, url: str) -> None:
        if problem := unreadable_kind("RUN", url):
            raise ValueError(problem)
        self._url = url.rstrip("/")
        self._states: dict[str, Any] = {}  # file -> its state when it was copied
        self._temporary = tempfile.TemporaryDirectory(prefix="verl-like-copy-")
        # The name of the folder is the name of the run.
        self.folder = Path(self._temporary.name) / (self._url.rpartition("/")[2] or "run")

    def __enter__(self) -> RemoteCopy:
        self.folder.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._temporary.cleanup()

    def refresh(self, check: Check = lambda: None) -> None:
        """Copy what has changed.

        Args:
            check: called while the store does not answer; an exception that it raises ends the wait.

        Raises:
            UnreadableCopy: the store fails or does not answer; the files are those of an earlier copy.
            ValueError: the remote folder holds no run.
        """
        reading = current(CallThreads).begin_with_check(f"reading {masked_text(self._url)}", self._copy)
        try:
            reading.result(TIMEOUT_S, check=check)
        except NoAnswer:
            raise UnreadableCopy(f"{masked_text(self._url)} did not answer within {TIMEOUT_S:g} s") from None
        except (ValueError, KeyboardInterrupt):
            raise
        except Exception as error:  # the libraries of stores have exceptions of many kinds
            reason = f"{type(error).__name__}: {error}"
            raise UnreadableCopy(f"{masked_text(self._url)} cannot be read ({masked_text(reason)})") from error
        finally:
            reading.abandon()

    def _copy(self, check: Check) -> None:
        remote = RemoteFolder(self._url)
        sizes = remote.files()
        if not {"config.yaml", "metrics.jsonl"} & sizes.keys():
            raise ValueError(
                f"{masked_text(self._url)} holds no copy of a run: it has neither config.yaml nor metrics.jsonl. "
                "Give trainer.remote_dir with the run's name, e.g. s3://bucket/runs/grpo-seed1."
            )
        check()
        known = _object(remote.read(COPIED))  # with the times of the run's own files
        states = {name: known.get(name, size) for name, size in sizes.items() if name in _wanted(sizes)}
        changed = {name: self.folder / name for name, state in states.items() if self._states.get(name) != state}
        remote.get(changed, check)
        self._states = states


def _wanted(names: dict[str, int]) -> set[str]:
    """Return the names of the files to copy; of the driver's logs, the newest."""
    logs = {int(found[1]): name for name in names if (found := _LOG.fullmatch(name))}
    newest = {logs[max(logs)]} if logs else set[str]()
    return newest | {name for name in names if _WANTED.fullmatch(name)}


def _object(content: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
