"""Users' files, one of each contract, as texts."""

COUNTER = '''
class Counter:
    def reset(self, target, **row):
        self.n, self.target = 0, target
        return f" Count to {target}."

    def increment(self, step: int) -> int:
        """Add to the counter.

        Args:
            step: how many.
        """
        self.n += step
        return self.n

    async def look(self) -> str:
        """Say the count."""
        return f"it is {self.n}"

    def get_reward(self):
        return float(self.n == self.target)
'''

FUNCTION_TOOL = '''
from verl.tools.function_tool import function_tool

@function_tool
def calculator(expression: str) -> str:
    """Evaluate arithmetic.

    Args:
        expression: such as (3+4)*5.
    """
    return str(eval(expression))

@function_tool("halve")
async def half(x: float):
    """Halve a number.

    Args:
        x: the number.
    """
    return str(x / 2), 0.25, {"seen": 1}
'''

BASE_TOOL = """
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

class Adder(BaseTool):
    def get_openai_tool_schema(self):
        return OpenAIFunctionToolSchema.model_validate({
            "type": "function",
            "function": {
                "name": "add", "description": "Add.",
                "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
            },
        })

    async def create(self, instance_id=None, start=0, **kwargs):
        self.sums = getattr(self, "sums", {})
        self.sums["one"] = start
        return "one", ToolResponse()

    async def execute(self, instance_id, parameters, **kwargs):
        self.sums[instance_id] += parameters["x"]
        return ToolResponse(text=str(self.sums[instance_id])), 0.5, {}

    async def calc_reward(self, instance_id, **kwargs):
        return 1.0
"""

OPENRLHF = """
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

class AgentInstance(AgentInstanceBase):
    def __init__(self):
        self.turns = 0

    async def reset(self, states, **kwargs):
        return {"observation": states["observation"]}

    async def step(self, states, **kwargs):
        self.turns += 1
        right = states["label"] in states["action_text"]
        return {
            "rewards": right, "scores": right, "done": right or self.turns == 3,
            "environment_feedback": "" if right else "wrong, again", "extra_logs": {"turns": self.turns},
        }

class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self):
        super().__init__(AgentInstance)
"""

SKYRL = """
from skyrl_gym.envs.base_text_env import BaseTextEnv

class Guess(BaseTextEnv):
    def __init__(self, env_config, extras):
        super().__init__()
        self.answer = extras["ground_truth"]

    def step(self, action):
        right = self.answer in action
        return dict(observations=[{"role": "user", "content": "no"}], reward=float(right), done=right, metadata={})
"""

GYM = """
import random

class Guess:
    def reset(self, seed=None):
        self.number = random.Random(seed).randint(1, 20)
        return "Guess a number.", {"suffix": "Your guess:"}

    def step(self, action):
        if str(self.number) == action:
            return "right", 1.0, True, False, {}
        hint = "higher" if int(action) < self.number else "lower"
        return hint, -0.1, False, False, {"suffix": "Next guess:"}

def make():
    return Guess()
"""

PLAIN = """
class Echo:
    state_key = "same"
    def reset(self, target, **row):
        return [{"role": "user", "content": f"say {target}"}]
    def step(self, text):
        return "you said " + text, 0.5, text == "stop"
"""

AGENT = """
async def run(base_url, prompt, request_kwargs, metadata):
    return {"reward": float(len(prompt) + len(metadata["ground_truth"])), "url": base_url}
"""

POISON = """
import os, signal, sys, time

class Poison:
    def reset(self, do, **row):
        self.do = do
        return "go"

    def step(self, text):
        if self.do == "raise":
            raise RuntimeError("it broke")
        if self.do == "exit":
            os._exit(3)
        if self.do == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.do == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.do == "hang":
            time.sleep(1000)
        if self.do == "large":
            return "x" * 10_000_000, 0.0, False
        if self.do == "memory":
            self.all = bytearray(64 * 2**30)
        if self.do == "form":
            return 7
        return "fine", 1.0, True
"""

# What goes wrong does so in the second turn, or in the third and last.
WRECK = '''
import asyncio, ctypes, os, signal, subprocess, sys, time

def daemon(pid_file):
    """Start a process that belongs to nobody: in a session of its own, its parents gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(pid_file + "~", "w") as file:
                file.write(str(os.getpid()))
            os.rename(pid_file + "~", pid_file)
            time.sleep(1000)
        os._exit(0)
    os.wait()
    while not os.path.exists(pid_file):
        time.sleep(0.01)

class Worse(BaseException):
    pass

class Meta(type):
    @property
    def __name__(cls):
        raise RuntimeError("no name")

class Unprintable(Exception, metaclass=Meta):
    def __str__(self):
        raise RuntimeError("no text")

RAISED = {"worse": Worse, "unprintable": Unprintable, "cancelled": asyncio.CancelledError}
RAISED["no value"] = StopAsyncIteration

class Wreck:
    def reset(self, do, number, file="", **row):
        self.do, self.number, self.turns, self.file = do, number, 0, file
        return f"go {number}"

    async def step(self, text):
        self.turns += 1
        do = self.do if self.turns == 2 else ""
        if do == "twin":
            os.fork()
        if do == "late twin" and os.fork() == 0:
            await asyncio.sleep(0.3)
        if do == "twin of C":
            ctypes.CDLL(None).fork()
        if do == "hang":
            time.sleep(1000)
        if do == "hang async":
            await asyncio.sleep(1000)
        if do == "crash":
            ctypes.string_at(0)
        if do == "large":
            return "x" * 10_000_000, 0.0, False
        if do == "raise":
            raise RuntimeError("it broke")
        if do in RAISED:
            raise RAISED[do]
        if do == "unencodable":
            found = []
            found.append(found)
            return [{"role": "user", "content": found}], 0.0, False
        if do == "exit":
            sys.exit(3)
        if do == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if do == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if do == "close":
            os.closerange(3, 1024)
            time.sleep(1000)
        if do == "group":
            os.killpg(0, signal.SIGKILL)
        if do == "calls":
            return [{"role": "tool", "content": str(each)} for each in range(10_000)], 0.0, False
        if do == "daemon":
            daemon(self.file)
        if do == "daemon hang":
            daemon(self.file)
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
            time.sleep(1000)
        if do == "print":
            print("x" * 5_000_000)
        if self.turns == 3 and self.do == "late":
            time.sleep(1000)
        return f"turn {self.turns} of {self.number}", self.number / 8, self.turns == 3
'''

# The form of OpenRLHF before its executors: an async constructor, and the prompt under its own name.
OLD_OPENRLHF = """
import numpy as np
from openrlhf.utils.agent import AgentExecutorBase, AgentInstanceBase

class AgentInstance(AgentInstanceBase):
    async def __init__(self, *args, **kwargs):
        self.step_idx = 0

    async def reset(self, states: dict, **kwargs):
        return {"observation": states["prompt"]}

    async def step(self, states: dict, **kwargs):
        self.step_idx += 1
        reward = np.float32(0.5)
        return {
            "rewards": reward, "scores": reward, "done": False, "environment_feedback": "again",
            "extra_logs": {"dummy_scores": reward, "several": np.zeros(2), "text": "1"},
        }

class AgentExecutor(AgentExecutorBase):
    def __init__(self, max_steps, max_length, llm_engine, result_queue):
        super().__init__(AgentInstance, max_steps, max_length, llm_engine, result_queue)
"""

MADE_FROM_EXTRAS = """
from skyrl_gym.envs.base_text_env import BaseTextEnv

class Guess(BaseTextEnv):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def step(self, action):
        right = self.answer in action
        return dict(observations=[], reward=float(right), done=True, metadata={"turns": 1, "tool": "none"})

def make(env_config, extras):
    return Guess(extras["reward_spec"]["ground_truth"])
"""

SCHEMA_OF_PARTS = """
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import (
    OpenAIFunctionParametersSchema, OpenAIFunctionPropertySchema, OpenAIFunctionSchema, OpenAIFunctionToolSchema,
)

class Adder(BaseTool):
    def get_openai_tool_schema(self):
        x = OpenAIFunctionPropertySchema(type="integer", description="a number")
        parameters = OpenAIFunctionParametersSchema(type="object", properties={"x": x}, required=["x"])
        function = OpenAIFunctionSchema(name="add", description="Add.", parameters=parameters)
        return OpenAIFunctionToolSchema(type="function", function=function)

    async def execute(self, instance_id, parameters, **kwargs):
        return f"{self.tool_schema.function.name} {parameters['x']}", 0.0, {}
"""
