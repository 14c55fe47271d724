"""Record how a run's calls reach their ends: Python loads this file in every process with this folder on PYTHONPATH.

``VERL_LIKE_TRACE`` is JSON written by ``tests/tools/trace_step.py``: the folder that receives one file for each
process, the checkout's root, the project's packages in it, and the functions at which stacks are recorded. Each call
of one of these and each call of a Ray actor's method adds a line with the project's functions on the stack.

A stack continues in the thread that handed over the work: the thread that put the item into the queue, or, for work
that came through no queue, the thread that started this one. Uses the standard library only; verl_like does not depend
on it.
"""

import functools
import importlib.machinery
import json
import os
import queue
import sys
import threading

TRACE = json.loads(os.environ.get("VERL_LIKE_TRACE", "null"))
ACTOR_CALLS = "ray.actor", "ActorMethod._remote"
WORKER_MODE = 1  # of Ray
# Not counted as functions: Python 3.12 inlines the first three into the function that contains them.
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>"}

_local = threading.local()
_handed_over = {}  # (queue, item), by id -> origin: the stack of the thread that put the item


def _listed(code):
    """Return a function's file below the checkout's root, and its qualified name."""
    return [code.co_filename.removeprefix(TRACE["root"]), code.co_qualname]


def _origin():
    """Return the project's functions on the stack of this thread, outermost first, and the Ray task that it runs."""
    functions, handed, frame = [], None, sys._getframe(1)
    taken = _local.__dict__.get("taken", {})
    while frame is not None:
        code = frame.f_code
        listed = _listed(code)
        if listed[0].partition("/")[0] in TRACE["packages"] and code.co_name not in COMPREHENSIONS:
            functions.append(listed)
        taken_here = taken.get(id(frame))
        if taken_here is not None and taken_here[0] is code:
            handed = taken_here[1]  # the outermost counts: inner ones took answers, not the work
        frame = frame.f_back
    functions.reverse()
    thread = threading.current_thread()
    if thread is threading.main_thread():
        handed = None
    elif handed is None:
        handed = thread.__dict__.get("_traced_origin")
    if handed is None:
        return {"task": _task(), "stack": functions}
    return {"task": handed["task"], "stack": [*handed["stack"], *functions]}


def _task():
    """Return the id of the Ray task that this thread runs; None in the driver and in processes without Ray."""
    module = sys.modules.get("ray._private.worker")
    worker = getattr(module, "global_worker", None)
    if getattr(worker, "mode", None) != WORKER_MODE or not hasattr(worker, "core_worker"):  # not connected yet
        return None
    return worker.current_task_id.hex()


def _record(end, function=None, made=()):
    """Record the stack, with the function that is about to be called."""
    origin = _origin()
    called = [] if function is None else [_listed(function.__code__)]
    line = json.dumps({"end": end, "made": list(made), "task": origin["task"], "stack": [*origin["stack"], *called]})
    with open(os.path.join(TRACE["folder"], f"{os.getpid()}.jsonl"), "a") as file:
        file.write(line + "\n")


# --- threads


def _put(of, item):
    _handed_over[id(of), id(item)] = _origin()


def _got(of, item):
    """Record the item's origin for the frame that took it; the entry is read while that frame is running."""
    origin = _handed_over.pop((id(of), id(item)), None)
    if origin is None:
        return
    frame = sys._getframe(1)
    while frame.f_code.co_filename in (__file__, queue.__file__):
        frame = frame.f_back
    _local.__dict__.setdefault("taken", {})[id(frame)] = frame.f_code, origin


class _SimpleQueue(queue.SimpleQueue):
    def put(self, item, block=True, timeout=None):
        _put(self, item)
        super().put(item, block, timeout)

    def get(self, block=True, timeout=None):
        item = super().get(block, timeout)
        _got(self, item)
        return item

    def put_nowait(self, item):
        self.put(item)

    def get_nowait(self):
        return self.get(block=False)


def _follow_threads():
    start, put, get = threading.Thread.start, queue.Queue.put, queue.Queue.get

    @functools.wraps(start)
    def traced_start(thread):
        thread._traced_origin = _origin()
        start(thread)

    @functools.wraps(put)
    def traced_put(self, item, block=True, timeout=None):
        _put(self, item)
        put(self, item, block, timeout)

    @functools.wraps(get)
    def traced_get(self, block=True, timeout=None):
        item = get(self, block, timeout)
        _got(self, item)
        return item

    threading.Thread.start = traced_start
    queue.Queue.put, queue.Queue.get, queue.SimpleQueue = traced_put, traced_get, _SimpleQueue


# --- ends


def _task_ids(returned):
    """Return the ids of the tasks that a call of an actor's method made: of one reference, of several, of a stream."""
    refs = returned if isinstance(returned, list) else [returned]
    refs = [getattr(ref, "_generator_ref", ref) for ref in refs]
    return {ref.task_id().hex() for ref in refs}


def _traced(function, end):
    @functools.wraps(function)
    def traced(*args, **kwargs):
        _record(end, function)
        return function(*args, **kwargs)

    return traced


def _traced_actor_call(function):
    @functools.wraps(function)
    def traced(*args, **kwargs):
        returned = function(*args, **kwargs)
        _record("remote", made=_task_ids(returned))
        return returned

    return traced


def _trace_ends(module):
    """Replace the ends that this module defines."""
    found = [(ACTOR_CALLS, _traced_actor_call)]
    found += [(target, functools.partial(_traced, end=end)) for end, target in TRACE["ends"].items()]
    for (where, name), wrapped in found:
        owner_name, _, attribute = name.rpartition(".")
        owner = getattr(module, owner_name, None) if owner_name else module
        function = vars(owner).get(attribute) if owner is not None else None
        is_here = module.__name__ == where or module.__name__.startswith(where + ".")
        if is_here and getattr(function, "__module__", None) == module.__name__:
            setattr(owner, attribute, wrapped(function))


class _Finder:
    """Changes modules as they are imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != ACTOR_CALLS[0] and name.partition(".")[0] not in TRACE["packages"]:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            _trace_ends(module)

        spec.loader.exec_module = exec_module
        return spec


if TRACE is not None:
    _follow_threads()
    sys.meta_path.insert(0, _Finder)
