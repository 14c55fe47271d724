"""Users' files in the forms that other projects document, as texts. None of them knows this project."""

from __future__ import annotations

# The tokens of a small model: whole calls, so that a random policy makes some.
CALLS_OF_TRL = [f'<tool_call>{{"name": "increment", "arguments": {{"step": {n}}}}}</tool_call>' for n in (1, 2)]
CALLS_OF_VERL = [
    f'<tool_call>{{"name": "{name}", "arguments": {{"{argument}": "{value}"}}}}</tool_call>'
    for name, argument, value in (("calculator", "expression", "(3+4)*5"), ("get_weather", "city", "Tokyo"))
]

# TRL 1.16: environment_factory, with get_reward; the rows have the column target.
TRL_WITH_GET_REWARD = '''
class CounterEnv:
    def __init__(self):
        self.counter = 0

    def reset(self, target, **kwargs) -> str | None:
        self.counter, self.target = 0, target
        return f"+{target}"

    def increment(self, step: int) -> int:
        """
        Increment the internal counter.

        Args:
            step: Value to add to the counter.

        Returns:
            The updated counter value.
        """
        self.counter += step
        return self.counter

    async def get_reward(self) -> float:
        return 1.0 - abs(self.target - self.counter) / 10
'''

# TRL 1.16: environment_factory, scored by a reward function that takes environments.
TRL_WITH_REWARD_FUNCTION = '''
class CounterEnv:
    def reset(self, **kwargs) -> None:
        self.counter = 0
        self.steps = []

    def increment(self, step: int) -> int:
        """
        Increment the internal counter.

        Args:
            step: Value to add to the counter.
        """
        self.counter += step
        self.steps.append(step)
        return self.counter


def counter_reward(environments, **kwargs):
    return [float(environment.counter) + 0.125 * len(environment.steps) for environment in environments]
'''

# verl 0.9: reward.custom_reward_function, and rollout.multi_turn.function_tool_path.
VERL_REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float("35" in solution_str) + 0.25 * (extra_info["num_turns"] > 2) + 0.01 * len(solution_str) ** 0.5
"""

VERL_FUNCTION_TOOLS = '''
import asyncio

from verl.tools.function_tool import function_tool


@function_tool
def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression.

    Args:
        expression: A Python expression, e.g. "(3+4)*5".
    """
    return str(eval(expression, {"__builtins__": {}}))


@function_tool("get_weather")
async def weather(city: str) -> dict:
    """Look up the weather of a city.

    Args:
        city: The city, e.g. "Tokyo".
    """
    await asyncio.sleep(0)
    return {"temperature": 17}
'''

# OpenRLHF 0.11: agent_func.py; a chat has a beginning, so its feedback is a message.
OPENRLHF_AGENT = """
import random
from typing import Any, Dict

import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor


class AgentInstance(AgentInstanceBase):
    def __init__(self, *args, **kwargs):
        self.step_idx = 0
        self.max_steps = random.randint(1, 3)

    async def reset(self, states: dict, **kwargs):
        return {"observation": states["observation"]}

    async def step(self, states: dict, **kwargs) -> Dict[str, Any]:
        right = states["label"] in states["action_text"]
        done = right or self.step_idx >= self.max_steps
        reward = torch.tensor(float(right)) if done else torch.tensor(0)
        self.step_idx += 1
        return {
            "rewards": reward,
            "scores": reward,
            "environment_feedback": "" if done else "+",
            "done": done,
            "sampling_params": states.get("sampling_params", None),
            "extra_logs": {"dummy_scores": reward, "turn_count": self.step_idx},
        }


class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self):
        super().__init__(AgentInstance)
"""

# An agent that knows a base URL and the openai package: two requests, the second of which is streamed.
OPENAI_AGENT = """
from openai import AsyncOpenAI


async def run(base_url, prompt, request_kwargs, metadata):
    client = AsyncOpenAI(base_url=f"{base_url}/v1", api_key=metadata["api_key"], max_retries=0)
    first = await client.chat.completions.create(model="policy", messages=prompt, **request_kwargs)
    answer = first.choices[0].message.content
    messages = [*prompt, {"role": "assistant", "content": answer}, {"role": "user", "content": "="}]
    second = ""
    async for part in await client.chat.completions.create(
        model="policy", messages=messages, stream=True, **request_kwargs
    ):
        second += (part.choices[0].delta.content or "") if part.choices else ""
    return {"reward": float(metadata["ground_truth"] in answer) + 0.5 * float("5" in second)}
"""

# gem 0.1: an environment of its registry.
GEM_GAME = """
import gem


def make():
    return gem.make("game:GuessTheNumber-v0-easy")
"""

# verifiers 0.4: a taskset, played by the null harness, which runs as a separate process.
VERIFIERS_TASKSET = """
import os

import verifiers.v1 as vf


class AddData(vf.TaskData):
    total: int


class AddTask(vf.Task[AddData]):
    @vf.reward
    async def has_digit(self, trace: vf.Trace) -> float:
        return float(str(self.data.total % 10) in trace.last_reply)


class AddTaskset(vf.Taskset[AddTask, vf.TasksetConfig]):
    def load(self):
        for number in range(100):
            data = AddData(idx=number, prompt=f"{number}+{number}", total=2 * number)
            yield AddTask(data, self.config.task)


TASKS = list(AddTaskset(vf.TasksetConfig(id="add")))


async def run(base_url, request_kwargs, metadata):
    os.environ["POLICY_API_KEY"] = metadata["api_key"]
    client = vf.TrainClientConfig(
        base_url=base_url, api_key_var="POLICY_API_KEY", renderer_model_name="TOKENIZER"
    )
    agent = vf.Agent(
        vf.AgentConfig(
            harness={"id": "null"},
            runtime=vf.SubprocessConfig(),
            model="policy",
            client=client,
            sampling=vf.SamplingConfig(**request_kwargs),
        )
    )
    trace = await agent.run(TASKS[metadata["number"]])
    if not trace.ok:
        raise RuntimeError(trace.errors[-1].message)
    assert all(node.token_ids for node in trace.nodes)
    return trace.reward
"""
