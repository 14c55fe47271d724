"""No wait without an end: every call that may block has a timeout, or stands below with the reason why it ends."""

from __future__ import annotations

import ast

from tests.tools.house import modules
from tests.tools.waits import calls_into_ray, unbounded

MODULES = modules()
OF_A_PICTURE = "reading or decoding a picture ends; a store has its timeouts"
OF_GROUP = "a collective: it has the timeout of its process group, which workers/setup.py gives"
KILLED = "the process was killed in the line before, and is no longer there when the kernel has let it go"
FOR_PARENT = "the process waits for its parent's next request, and ends when the parent's end of the pipe closes"
REASONS = {
    "backends.fsdp.checkpoint:_write: dist.barrier": OF_GROUP,
    "backends.fsdp.engine:FsdpEngine.export_adapter: dist.barrier": OF_GROUP,
    "controller.fork_server.random_ids:_drawn_after_fork: os.waitpid": "the process draws an id and ends",
    "controller.fork_server.server:_next_request: listener.accept": FOR_PARENT,
    "controller.fork_server.server:_received: connection.recv": "the socket has a timeout",
    "controller.fork_server.server:_received: socket.recv_fds": "the socket has a timeout",
    "controller.fork_server.setup_worker:forked: server.connect": "the socket has a timeout",
    "backends.fsdp.sharding:_mesh: init_device_mesh": OF_GROUP,
    "backends.fsdp.gathering:SharedGather._wait: dist.barrier": OF_GROUP,
    "backends.fsdp.weights:export_folder: dist.barrier": OF_GROUP,
    "data.row_pictures:counted_prompts: job.result": OF_A_PICTURE,
    "data.row_pictures:loaded_prompts: job.result": OF_A_PICTURE,
    "dashboard.keys:TerminalKeys.pressed: os.read": "select has found a key",
    "environments.nursery_connection:NurseryConnection.close: self._nursery.wait": "has its timeouts within",
    "report.refreshed:RefreshedContent.current: self._building.acquire": "the first request builds it from files",
    "environments.process_calls:read_answers: process.connection.recv": "the socket does not block",
    "environments.nursery_connection:NurseryConnection.receive: self.socket.recv": "it does not block",
    "environments.nursery_start:loaded: nursery.connection.recv": "the socket has a timeout",
    "verl_like_environments.serving:_Server._received: self._connection.recv": FOR_PARENT,
    "verl_like_environments.nursery:Nursery._answer: socket.recv_fds": "poll has said that there is something",
    "verl_like_environments.nursery:Nursery.run: os.read": "the pipe does not block",
    "workers.episode_thread:EpisodeThread.take: self._run_ended.result": "it is asked only if it is done",
    "verl_like_graders.programs.fork_server:_Server._attend: os.read": "the pipe does not block",
    "verl_like_graders.programs.fork_server:_Server._close: os.waitpid": KILLED,
    "verl_like_graders.programs.fork_server:_Server._serve: socket.recv_fds": FOR_PARENT,
    "verl_like_graders.programs.fork_server:_Server._start: socket.recv_fds": "the socket has a timeout",
    "verl_like_graders.programs.launcher:ForkServer._request: self._socket.recv": "the socket has a timeout",
    "verl_like_graders.programs.launcher:_close: process.wait": KILLED,
    "verl_like_graders.programs.solution:_join_threads: ?.join": "the program's threads; killed at the deadline",
    "verl_like_graders.programs.values:Channel._exactly: self._socket.recv": "select has said that there is something",
    "remote_models:local_path: fcntl.flock": "who holds it copies a model, and builds have cluster.start_timeout_s",
    "reward.event_loop:EventLoop.outcomes: arrived.get": "every call that is awaited has reward.timeout_s",
    "verl_like_environments.subreaper:Subreaper._turn: os.read": "poll has said that there is something",
    "verl_like_environments.output:OutputFilter._write: self._queue.get": "its end is waited for with a timeout",
    "verl_like_environments.output:OutputFilter.read: os.read": "the pipe does not block",
    "reward.scorer_process:ScorerProcess.kill: self._launched.wait": "has its timeouts within",
    "reward.team:ScorerTeam._piece: self._free.get": "who has the process waits for it within deadlines",
    "reward.team:ScorerTeam._read_piece: self._free.get": "as in _piece",
    "call_threads:CallThreads._work: self._calls.get": "a thread at rest, for which nobody waits",
    "controller.ray_calls:arrived.poll: ray.get": "made on a call thread, as all calls in that module",
    "telemetry.background_tracker:BackgroundTracker._next: self._reports.get": "its end is waited for with a timeout",
    "telemetry.stacks:_print_at_signals: os.read": "a thread at rest, for which nobody waits",
    "runs.signals:_End._watch: os.read": "poll has said that there is something",
    "watchdog.guard:_Guard._pass_reports_on: os.read": "select has said that there is something",
    "watchdog.sibling:Sibling.run: os.read": "select has said that there is something",
}


def test_every_wait_has_a_timeout_or_a_reason_to_end() -> None:
    found = unbounded(MODULES)
    assert found - set(REASONS) == set(), "give it a timeout, or say in REASONS why it ends"
    assert set(REASONS) - found == set(), "the wait is gone; so should its reason be"


def test_ray_is_called_in_one_module_which_bounds_every_call() -> None:
    found = calls_into_ray(MODULES)
    assert {call for call in found if not call.startswith("controller.ray_calls:")} == set()
    assert "controller.ray_calls:fetched: ray.get" in found, "the measure sees nothing"


def test_the_measure_sees_waits_and_lets_through_what_has_a_timeout() -> None:
    seen = """
def f(thread, queue, lock, future, process, connection, dist, ray, actor):
    thread.join()
    queue.get()
    lock.acquire()
    future.result()
    process.communicate()
    process.communicate("text")
    connection.recv(5)
    process.wait(timeout=None)
    subprocess.run(["true"])
    subprocess.check_output(["true"], text=True)
    select.select([1], [], [])
    dist.new_group([0])
    socket.create_connection(("a", 1))
    ray.get(1)
"""
    bounded = """
def f(thread, queue, lock, future, process, words, table, dist):
    thread.join(5)
    queue.get(timeout=1)
    lock.acquire(timeout=3)
    lock.acquire(False)
    future.result(timeout=2)
    process.communicate(timeout=3)
    " ".join(words)
    table.get("name")
    subprocess.run(["true"], timeout=4)
    select.select([1], [], [], 0)
    dist.new_group([0], timeout=3)
    socket.create_connection(("a", 1), 3)
"""
    calls = [line.strip() for line in seen.splitlines()[2:]]
    assert len(unbounded({"m": ast.parse(seen)})) == len({call.split("(")[0] for call in calls})
    assert unbounded({"m": ast.parse(bounded)}) == set()
    into_ray = (
        "from ray.util.placement_group import placement_group\nray.get(1)\nactor.f.remote()\nplacement_group(2)\n"
    )
    assert calls_into_ray({"m": ast.parse(into_ray + "@ray.method()\ndef f(): ...")}) == {
        "m:: ray.get",
        "m:: actor.f.remote",
        "m:: placement_group",
    }
