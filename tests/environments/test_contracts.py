"""Every contract of users' environments, each in processes as in a run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.environments import _files
from verl_like.environments.processes import CallAnswer, CallFailure, EnvironmentProcesses, ProcessSettings

pytestmark = pytest.mark.processes
LIMIT_S = 20.0


class Playing:
    """One environment and its processes."""

    def __init__(self, processes: EnvironmentProcesses) -> None:
        self.processes = processes

    def ask(self, process: int, request: Mapping[str, Any], *, limit_s: float = LIMIT_S) -> Any:
        call = self.processes.call(process, {"episode": 1, **request}, limit_s=limit_s)
        found = self.wait({call})[call]
        return found.failure or found.result

    def wait(self, calls: set[int]) -> dict[int, CallAnswer]:
        answers: dict[int, CallAnswer] = {}
        deadline = time.monotonic() + LIMIT_S
        while calls - answers.keys() and time.monotonic() < deadline:
            answers |= {answer.call: answer for answer in self.processes.poll(1.0)}
        assert calls <= answers.keys(), f"no answer to {calls - answers.keys()}"
        return answers

    def reset(self, *, seed: int = 7, **columns: Any) -> tuple[int, dict[str, Any]]:
        process = self.processes.open()
        row = {"messages": [{"role": "user", "content": "Hello."}], "columns": columns, "seed": seed}
        found = self.ask(process, {"do": "reset", "row": row})
        assert not isinstance(found, CallFailure), found
        return process, found

    def step(self, process: int, text: str = "", calls: tuple[tuple[str, dict[str, Any]], ...] = ()) -> Any:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {"id": f"call{number}", "function": {"name": name, "arguments": arguments}}
                for number, (name, arguments) in enumerate(calls)
            ]
        return self.ask(process, {"do": "step", "turn": {"text": text, "message": message}})

    def reward(self, process: int) -> Any:
        found = self.finish(process)
        return found if isinstance(found, CallFailure) else found["reward"]

    def finish(self, process: int) -> Any:
        return self.ask(process, {"do": "finish"})


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Playing]]:
    opened: list[EnvironmentProcesses] = []

    def of(source: str, name: str = "", **settings: Any) -> Playing:
        file = tmp_path / "user.py"
        file.write_text(source)
        chosen = {"path": f"{file}:{name}"} if name else {"tools": str(file)}
        processes = EnvironmentProcesses(ProcessSettings(**chosen, **settings))
        processes.start()
        opened.append(processes)
        processes.load()
        return Playing(processes)

    yield of
    for processes in opened:
        processes.close()


def contents(found: Mapping[str, Any]) -> list[str]:
    return [message["content"] for message in found["messages"]]


def test_a_class_of_trl_whose_methods_are_tools(play: Callable[..., Playing]) -> None:
    playing = play(_files.COUNTER, "Counter")
    process, found = playing.reset(target=3)
    assert contents(found) == ["Hello. Count to 3."]
    assert [tool["function"]["name"] for tool in found["tools"]] == ["increment", "look"]
    [increment, _] = found["tools"]
    assert increment["function"]["parameters"] == {
        "type": "object",
        "properties": {"step": {"type": "integer", "description": "how many."}},
        "required": ["step"],
    }
    found = playing.step(process, calls=(("increment", {"step": 2}), ("look", {})))
    assert found["messages"][0] == {"role": "tool", "name": "increment", "tool_call_id": "call0", "content": "2"}
    assert found["num_tool_calls"] == 2 and not found["is_done"]
    assert contents(playing.step(process, calls=(("increment", {"step": 1}),))) == ["3"]
    assert playing.step(process, "I have finished.")["is_done"] and playing.reward(process) == 1.0


def test_calls_that_fail_are_answered_and_counted(play: Callable[..., Playing]) -> None:
    playing = play(_files.COUNTER, "Counter")
    process, _ = playing.reset(target=3)
    found = playing.step(process, calls=(("increment", {"step": "x"}), ("increment", {}), ("fly", {"to": 1})))
    assert found["num_tool_errors"] == 3 and not found["is_done"]
    first, second, third = contents(found)
    assert first.startswith("Error: TypeError") and "missing a required argument: 'step'" in second
    assert third == "Error: there is no tool 'fly'; the tools are increment, look."


def test_functions_registered_with_verls_decorator(play: Callable[..., Playing]) -> None:
    playing = play(_files.FUNCTION_TOOL)
    process, found = playing.reset()
    assert [tool["function"]["name"] for tool in found["tools"]] == ["calculator", "halve"]
    found = playing.step(process, calls=(("calculator", {"expression": "(3+4)*5"}), ("halve", {"x": 3})))
    assert contents(found) == ["35", "1.5"] and found["reward"] == 0.25
    assert playing.reward(process) == 0.25


@pytest.mark.parametrize(("returned", "reward"), [("'x'", None), ("('x', 0.0)", 0.0), ("('x', None)", None)])
def test_no_reward_is_not_a_reward_of_zero(play: Callable[..., Playing], returned: str, reward: float | None) -> None:
    source = f"from verl.tools.function_tool import function_tool\n\n@function_tool\ndef f():\n    return {returned}\n"
    playing = play(source)
    process, _ = playing.reset()
    playing.step(process, calls=(("f", {}),))
    assert playing.reward(process) == reward


def test_tool_classes_of_verl(play: Callable[..., Playing]) -> None:
    playing = play(_files.BASE_TOOL)
    process, found = playing.reset(extra_info={"tools_kwargs": {"add": {"create_kwargs": {"start": 10}}}})
    assert found["tools"][0]["function"]["name"] == "add"
    assert contents(playing.step(process, calls=(("add", {"x": 5}),))) == ["15"]
    assert contents(playing.step(process, calls=(("add", {"x": 1}),))) == ["16"]
    assert playing.reward(process) == 2 * 0.5 + 1.0


def test_an_agent_instance_of_openrlhf(play: Callable[..., Playing]) -> None:
    playing = play(_files.OPENRLHF, "AgentInstance")
    process, found = playing.reset(ground_truth="42")
    assert contents(found) == ["Hello."]
    found = playing.step(process, "41")
    assert contents(found) == ["wrong, again"] and found["reward"] == 0.0 and found["numbers"] == {"turns": 1.0}
    assert playing.step(process, "it is 42")["is_done"] and playing.reward(process) == 1.0


def test_an_agent_instance_in_an_older_form_of_openrlhf(play: Callable[..., Playing]) -> None:
    playing = play(_files.OLD_OPENRLHF, "AgentInstance")
    process, found = playing.reset()
    assert contents(found) == ["Hello."]
    found = playing.step(process, "x")
    assert found["reward"] == 0.5 and found["numbers"] == {"dummy_scores": 0.5}, "scalars of numpy are numbers"


def test_a_function_that_makes_an_environment_of_skyrl_from_the_extras_of_a_row(play: Callable[..., Playing]) -> None:
    playing = play(_files.MADE_FROM_EXTRAS, "make")
    for columns in ({"ground_truth": "7"}, {"reward_model": {"ground_truth": "7"}}):
        process, _ = playing.reset(**columns)
        found = playing.step(process, "7")
        assert found["reward"] == 1.0 and found["numbers"] == {"turns": 1.0}


def test_a_tool_of_verl_whose_schema_is_made_of_parts(play: Callable[..., Playing]) -> None:
    playing = play(_files.SCHEMA_OF_PARTS)
    process, found = playing.reset()
    assert found["tools"][0]["function"]["parameters"]["required"] == ["x"]
    assert contents(playing.step(process, calls=(("add", {"x": 1}),))) == ["add 1"]


def test_a_reset_of_trl_gets_no_column_that_it_does_not_name(play: Callable[..., Playing]) -> None:
    playing = play(
        "class Env:\n    def reset(self, prompt, target): return target\n    def get_reward(self): return 1\n", "Env"
    )
    _, found = playing.reset(target=" 3", data_source="games", ground_truth=None)
    assert contents(found) == ["Hello. 3"]


def test_a_text_environment_of_skyrl(play: Callable[..., Playing]) -> None:
    playing = play(_files.SKYRL, "Guess")
    process, found = playing.reset(ground_truth="7")
    assert contents(found) == ["Hello."]
    assert contents(playing.step(process, "6")) == ["no"]
    assert playing.step(process, "7")["is_done"] and playing.reward(process) == 1.0


def test_an_environment_with_five_values_takes_the_samples_seed(play: Callable[..., Playing]) -> None:
    playing = play(_files.GYM, "make")
    first, found = playing.reset(seed=7)
    assert contents(found) == ["Guess a number.\nYour guess:"]
    assert contents(playing.step(first, "0")) == ["higher\nNext guess:"]
    numbers = []
    for seed in (7, 7, 8):
        process, _ = playing.reset(seed=seed)
        numbers.append(next(n for n in range(1, 21) if playing.step(process, str(n))["is_done"]))
    assert numbers[0] == numbers[1] != numbers[2]


def test_this_projects_own_form(play: Callable[..., Playing]) -> None:
    playing = play(_files.PLAIN, "Echo")
    process, found = playing.reset(target="hi")
    assert contents(found) == ["say hi"]
    found = playing.step(process, "a")
    assert (contents(found), found["reward"], found["state_key"]) == (["you said a"], 0.5, "same")
    assert playing.step(process, "stop")["is_done"] and playing.reward(process) == 1.0


def test_an_agent_program_gets_its_own_url(play: Callable[..., Playing]) -> None:
    playing = play(_files.AGENT, "run")
    row = {"messages": [{"role": "user", "content": "hi"}], "columns": {"ground_truth": "xy"}, "seed": 1}
    request = {"do": "run", "row": row, "base_url": "http://127.0.0.1:1/v1", "api_key": "k", "request_kwargs": {}}
    assert playing.ask(playing.processes.open(), request) == 3.0


@pytest.mark.parametrize(
    ("do", "reason", "text"),
    [
        ("raise", "error", "RuntimeError: it broke"),
        ("form", "error", "BadReturn: step returned a int; expected (messages, reward, done)"),
        ("memory", "error", "MemoryError"),
        ("exit", "crash", "the environment's process ended with code 3"),
        ("kill", "crash", "the environment's process was ended by signal 9"),
        ("large", "junk", "the environment answered with a frame of"),
    ],
)
def test_a_failure_has_a_name_and_harms_no_other_episode(
    play: Callable[..., Playing], do: str, reason: str, text: str
) -> None:
    playing = play(_files.POISON, "Poison", max_message_mib=1.0)
    process, _ = playing.reset(do=do)
    other, _ = playing.reset(do="nothing")
    found = playing.step(process, "x")
    assert isinstance(found, CallFailure) and found.reason == reason and found.text.startswith(text), found
    assert playing.step(other, "x")["is_done"]


@pytest.mark.parametrize("do", ["hang", "stop"])
def test_a_call_past_its_deadline_fails_and_its_process_is_ended(play: Callable[..., Playing], do: str) -> None:
    playing = play(_files.POISON, "Poison")
    process, _ = playing.reset(do=do)
    turn = {"text": "x", "message": {"role": "assistant", "content": "x"}}
    start = time.monotonic()
    found = playing.ask(process, {"do": "step", "turn": turn}, limit_s=0.5)
    assert isinstance(found, CallFailure) and (found.reason, found.text) == ("timeout", "step did not return in time")
    assert time.monotonic() - start < 2.0
    again = playing.step(process, "x")
    assert again == found, "every later call fails for the same reason"


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("x = 1", "Env", r"has no 'Env'; it has nothing that can be called"),
        ("raise KeyError('no')", "Env", r"cannot be loaded: KeyError: 'no'"),
        ("class Env: pass", "Env", r"follows no known contract; expected a class with step"),
        ("Env = 3", "Env", r"is a int; expected a class, a function or a dict"),
        ("_x = 1", "", r"defines no public function"),
        ("def f(*args): pass", "", r"tool 'f' has the parameter 'args', which a model cannot pass by name"),
    ],
)
def test_a_file_of_no_known_form_is_refused(play: Callable[..., Playing], source: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        play(source, name)


def test_a_burst_of_episodes_starts_and_ends_although_nobody_reads_meanwhile(play: Callable[..., Playing]) -> None:
    processes = play(_files.POISON, "Poison").processes
    numbers = [processes.open() for _ in range(400)]
    for number in numbers[1:]:
        processes.end(number)
    playing, turn = Playing(processes), {"text": "x", "message": {"role": "assistant", "content": "x"}}
    row = {"messages": [{"role": "user", "content": "hi"}], "columns": {"do": "nothing"}, "seed": 1}
    playing.ask(numbers[0], {"do": "reset", "row": row})
    assert playing.ask(numbers[0], {"do": "step", "turn": turn})["is_done"]
    until(lambda: len(nursery_of(processes).children()) == 1)


def test_what_the_users_code_writes_into_its_connection_is_no_answer(play: Callable[..., Playing]) -> None:
    forged = """
import gc, json, socket, struct

class Forger:
    def reset(self, **row):
        for found in gc.get_objects():
            if isinstance(found, socket.socket) and found.fileno() >= 0:
                for frame in ({"id": [1]}, [1], {"id": 99}):
                    content = json.dumps(frame).encode()
                    found.send(struct.pack(">I", len(content)) + content)
        return "go"

    def step(self, text):
        return "fine", 1.0, True
"""
    playing = play(forged, "Forger")
    process, found = playing.reset()
    assert contents(found) == ["go"] and playing.step(process, "x")["is_done"]


STATES = """
class Steps:
    def reset(self, **row):
        self.at = 0

    def step(self, text):
        self.at += 1
        return "go on", 0.0, False

    @property
    def state_key(self):
        return self.at

class Tools:
    def reset(self, **row):
        self.at = 0

    def move(self):
        \"\"\"Move.\"\"\"
        self.at += 1

    def state_key(self):
        return f"at {self.at}"
"""


@pytest.mark.parametrize(("name", "keys"), [("Steps", ["0", "1"]), ("Tools", ["at 0", "at 1"])])
def test_the_states_before_the_first_and_later_turns_have_their_keys(
    play: Callable[..., Playing], name: str, keys: list[str]
) -> None:
    playing = play(STATES, name)
    process, found = playing.reset()
    assert [tool["function"]["name"] for tool in found["tools"]] == (["move"] if name == "Tools" else [])
    later = playing.step(process, calls=(("move", {}),))
    assert [found["state_key"], later["state_key"]] == keys


def nursery_of(processes: EnvironmentProcesses) -> psutil.Process:
    [nursery] = psutil.Process(processes._nursery.subreaper_pid).children()
    return nursery


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition has not come true"
        time.sleep(0.02)


HOLDER = """
import sys, time
from verl_like.environments.processes import EnvironmentProcesses, ProcessSettings

processes = EnvironmentProcesses(ProcessSettings(path=sys.argv[1]))
processes.start()
processes.load()
row = {"messages": [{"role": "user", "content": "hi"}], "columns": {"do": "hang"}, "seed": 1}
turn = {"text": "x", "message": {"role": "assistant", "content": "x"}}
for number in range(3):
    process = processes.open()
    processes.call(process, {"do": "reset", "episode": 1, "row": row}, limit_s=20)
    while not processes.poll(1):
        pass
    processes.call(process, {"do": "step", "episode": 1, "turn": turn}, limit_s=1000)
print("hanging", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("is_stopped", [False, True])
def test_no_process_outlives_the_one_that_generates(tmp_path: Path, is_stopped: bool) -> None:
    (file := tmp_path / "user.py").write_text(_files.POISON)
    command = [sys.executable, "-c", HOLDER, f"{file}:Poison"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "hanging\n"
        started = psutil.Process(holder.pid).children(recursive=True)
        assert len(started) == 5, "the subreaper, the nursery, and a process for each episode"
        if is_stopped:
            for each in started:
                each.suspend()
        holder.kill()
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []
