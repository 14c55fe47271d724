"""Inject faults from inside: Python loads this file in every process of a run with this folder on its PYTHONPATH.

verl_like does not depend on it. ``VERL_LIKE_CHAOS`` names one fault, as ``process stage visit fault``: the process as
messages name it, with ``_`` for a space, the stage, the visit to that stage (from 1), and one of :data:`FAULTS`. It is
injected once in a run: a file in ``VERL_LIKE_CHAOS_FOLDER`` records that.
"""

import importlib.abc
import importlib.machinery
import os
import signal
import sys
import time


def _raise():
    raise RuntimeError("a fault that was injected")


def _hang():
    time.sleep(10_000)


def _hold_the_lock():
    import ctypes

    ctypes.PyDLL(None).usleep(2_000_000_000)


def _spin():
    while True:
        pass


def _oversleep():
    time.sleep(float(os.environ["VERL_LIKE_CHAOS_SLEEP_S"]))


def _die():
    os.kill(os.getpid(), 9)


def _exit():
    os._exit(3)


def _allocate():
    """Allocate memory up to a limit that this process sets, so that the machine survives."""
    import resource

    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**28, now + 2**28))
    held = []
    while True:
        held.append(bytearray(2**24))


def _stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def _wait():
    """Hold the run in its middle until the fault from outside has been injected."""
    while not os.path.exists(os.path.join(os.environ["VERL_LIKE_CHAOS_FOLDER"], "go")):
        time.sleep(0.02)


def _others(word, signum):
    """Send a signal to the descendants of this process that have a word in their command lines."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        if word in " ".join(process.cmdline()):
            process.send_signal(signum)


FAULTS = {
    "wait": _wait,
    "stop_raylet": lambda: _others("raylet/raylet", signal.SIGSTOP),
    "kill_raylet": lambda: _others("raylet/raylet", signal.SIGKILL),
    "stop_workers": lambda: _others("ray::WorkerHost", signal.SIGSTOP),
    "SIGSTOP": _stop,
    "raise": _raise,
    "hang": _hang,
    "hold": _hold_the_lock,
    "spin": _spin,
    "sleep": _oversleep,
    "die": _die,
    "exit": _exit,
    "allocate": _allocate,
}


def _inject(ledger):
    """Inject the fault when its stage is entered for the given number of times."""
    process, stage, visit, fault = os.environ["VERL_LIKE_CHAOS"].split()
    enter, visits = ledger.Ledger.enter, [0]

    def entering(self, name, *arguments):
        entered = enter(self, name, *arguments)
        if name == stage and _is_me(process, ledger):
            visits[0] += 1
            if visits[0] == int(visit) and _first_time():
                FAULTS[fault]()
        return entered

    ledger.Ledger.enter = entering


def _is_me(process, ledger):
    return ledger.current(ledger.Heartbeat).who.replace(" ", "_") == process


def _first_time():
    try:
        os.close(os.open(os.path.join(os.environ["VERL_LIKE_CHAOS_FOLDER"], "done"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class _Finder(importlib.abc.MetaPathFinder):
    """Changes one module as it is imported."""

    def find_spec(self, name, path, target=None):
        if name != "verl_like.telemetry.ledger":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            _inject(module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("VERL_LIKE_CHAOS"):
    sys.meta_path.insert(0, _Finder())
