"""Restore a run from its remote folder if the copy there is ahead, for instance on a fresh machine."""

from __future__ import annotations

import logging
from pathlib import Path

from verl_like.call_threads import CallThreads, Check, NoAnswer
from verl_like.checks.manifest import damage
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.errors import Interrupt
from verl_like.runs.checkpoint import Checkpoints, load_state
from verl_like.runs.folder import RunFolder, refuse_recorded
from verl_like.runs.lock import FolderLock, refuse_held
from verl_like.runs.remote_run import RemoteRun
from verl_like.telemetry.startup import Startup

log = logging.getLogger(__name__)

GIVE_UP_S = 2.0  # for an abandoned copy, which checks for that between the pieces of a file


def restore(config: Config, config_yaml: str, *, job: str) -> None:
    """Copy the newest checkpoint, the best one and the run's other files here, if the remote copy is ahead.

    An unreadable or read-only store only causes a warning if the run's folder has a checkpoint to continue from. If it
    has none, the store may have the only one, and the run must not start from the beginning.

    Args:
        config: a configuration that the checks have accepted.
        config_yaml: the same as text.
        job: "train" or "sft"; empty for a command that only reads a run's files.

    Raises:
        ValueError: the remote folder holds another run, cannot be read, or holds no intact checkpoint.
    """
    if not config.trainer.remote_dir:
        return
    folder, timeout_s = RunFolder(config), config.trainer.remote_timeout_s
    url = f"trainer.remote_dir={config.trainer.remote_dir}"
    newest = _newest_intact(folder)
    if newest < 0:
        current(Startup).now(f"searching for the run in {config.trainer.remote_dir}")
    attempt = _Restore(config, config_yaml, job=job, newest=newest)
    try:
        newer = current(CallThreads).call(url, attempt.newer_steps, limit_s=timeout_s, check=_stop_if_interrupted)
        if newer:
            # The lock is held here, because the thread may hang long after the call is abandoned and the run has
            # continued.
            with FolderLock(folder.path):
                copying = current(CallThreads).begin_with_check(url, lambda check: attempt.run(newer, check))
                try:
                    copying.result(timeout_s, check=_stop_if_interrupted)
                finally:
                    copying.abandon()
                    copying.wait(GIVE_UP_S)
        return
    except ValueError:
        raise
    except NoAnswer:
        reason = f"did not answer within trainer.remote_timeout_s={timeout_s:g}"
        if attempt.restoring:
            reason = f"did not deliver {attempt.restoring} within trainer.remote_timeout_s={timeout_s:g}"
    except Exception as error:
        log.debug("details", exc_info=error)
        reason = f"cannot be used ({type(error).__name__}: {error})"
        if attempt.restoring:
            reason = f"has {attempt.restoring}, which could not be restored ({type(error).__name__}: {error})"
    if newest < 0 and attempt.restoring:
        raise ValueError(
            f"{url} {reason}. Raise trainer.remote_timeout_s, or check the network and the disk of {folder.path}."
        )
    if newest < 0:
        raise ValueError(
            f"{url} {reason}, so it is unknown whether it holds the run. Check the store's credentials and "
            "address, or start without it: trainer.remote_dir=''."
        )
    log.warning("%s %s; the run continues from %s", url, reason, folder.checkpoints / f"step_{newest}")


class _Restore:
    """The part of :func:`restore` on call threads; once abandoned, it leaves the folder alone after its next check."""

    def __init__(self, config: Config, config_yaml: str, *, job: str, newest: int) -> None:
        self.restoring = ""  # the newest checkpoint that is being copied
        self._folder, self._resume = RunFolder(config), config.trainer.resume
        self._url, self._max_checkpoints = config.trainer.remote_dir, config.trainer.max_checkpoints
        self._yaml, self._job, self._newest = config_yaml, job, newest

    def newer_steps(self) -> list[int]:
        """Return the store's steps beyond the run's folder, after checking that they belong to this run."""
        if not self._job and self._resume != "auto":
            return []
        run = self._remote()
        steps = run.steps()
        if self._job and run.is_used():
            self._refuse_other(run, steps)
        if self._job and steps and self._resume != "auto":
            _refuse_branch(run.url, self._resume, steps[-1])
        if self._job:
            run.try_writing()  # now, not at the first checkpoint
        newer = [step for step in steps if step > self._newest] if self._resume == "auto" else []
        if newer:
            refuse_held(self._folder.path)
            if self._job:
                self._folder.refuse_other(self._yaml, job=self._job, resume=self._resume)
            else:
                self._folder.refuse_replacing(run.url, run.config())
        return newer

    def _remote(self) -> RemoteRun:
        return RemoteRun(self._url, self._folder, max_checkpoints=self._max_checkpoints)

    def _refuse_other(self, run: RemoteRun, steps: list[int]) -> None:
        """Raise if the store holds another run.

        A store with a missing or incomplete ``config.yaml`` counts as this run's if the run's folder is as far.
        """
        there, folder = run.config(), self._folder
        own = folder.config.read_text(errors="replace") if folder.config.exists() else ""
        is_as_far = self._newest >= max([0, *steps])
        if self._resume != "never" and is_as_far and there != own and own.startswith(there):
            folder.refuse_other(self._yaml, job=self._job, resume=self._resume)
            log.warning(
                "the config.yaml in %s is missing or incomplete. %s has all steps of the run that are there, so the "
                "next copy restores the file.",
                run.url,
                folder.path,
            )
            return
        refuse_recorded(run.url, there, self._yaml, job=self._job, resume=self._resume)

    def run(self, steps: list[int], check: Check) -> None:
        """Restore the newest intact checkpoint of these steps, the best one and the other files."""
        check()
        run = self._remote()
        damaged: list[str] = []
        for step in reversed(steps):
            self.restoring = f"step_{step}"
            current(Startup).now(f"copying step_{step} from {run.url}")
            reason = run.restore(step, check)
            if reason is None:
                return
            damaged.append(f"step_{step} ({reason})")
            log.warning("%s holds a damaged %s; trying an older one", run.url, damaged[-1])
        if self._newest < 0:
            raise ValueError(
                f"{run.url} holds no intact checkpoint: {'; '.join(damaged)}. Start a new run with another "
                "trainer.experiment_name."
            )


def _newest_intact(folder: RunFolder) -> int:
    """Return the newest step with an intact checkpoint in the run's folder; -1 if there is none."""
    checkpoints = Checkpoints(folder.checkpoints, 1)
    whole = (step for step in reversed(checkpoints.steps()) if damage(checkpoints.path(step)) is None)
    return next(whole, -1)


def _refuse_branch(url: str, resume: str, newest: int) -> None:
    """Raise if two continuations would be mixed in the remote folder, as in the run's own."""
    step = load_state(Path(resume).expanduser())["step"]
    if newest > step:
        raise ValueError(
            f"trainer.resume={resume} is step {step}, but {url} holds step_{newest} of another continuation, and the "
            "two would be mixed. Set another trainer.experiment_name to branch off, or trainer.resume=auto to continue "
            "from the newest."
        )


def _stop_if_interrupted() -> None:
    current(Interrupt).stop_before("start")
