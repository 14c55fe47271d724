"""Runs of the fault matrix with episodes: environments and agent programs in which the fault happens or is awaited.

Either source injects its fault once, in the second turn of an episode of step 2 or later.
"""

from __future__ import annotations

import shutil
from pathlib import Path

EPISODE = "episode"  # used as a stage: in the middle of an episode
INSIDE = ("environment", "nursery", "agent program")  # processes that inject their fault themselves
TEMPLATE = """\
{%- for message in messages -%}
{{ message.content }}{%- if message.role == 'assistant' -%}{{ eos_token }}{%- endif -%}
{%- endfor -%}"""
FAULT = """
import json, os, signal, time, urllib.request
from pathlib import Path

HERE = Path(__file__).parent


def is_due():
    return Path({run!r}, "checkpoints/step_1").exists() and not (HERE / "healthy").exists()


def is_first():
    try:
        os.close(os.open(HERE / "done", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def wait():
    while not (HERE / "go").exists():
        time.sleep(0.02)


def in_second_turn():
    if is_due() and (is_first() or {always}):
        {fault}
"""
ENVIRONMENT = """

class Game:
    def reset(self, **row):
        self.turns = 0

    def step(self, text):
        self.turns += 1
        if self.turns == 2:
            in_second_turn()
        return "+", float(text.count("7")), self.turns == 3
"""
AGENT = """

def run(base_url, prompt, metadata):
    reward, messages = 0.0, list(prompt)
    for turn in range(3):
        if turn == 1:
            in_second_turn()
        body = json.dumps({"model": "policy", "messages": messages, "max_tokens": 2}).encode()
        headers = {"Authorization": f"Bearer {metadata['api_key']}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{base_url}/v1/chat/completions", body, headers)
        with urllib.request.urlopen(request) as response:
            message = json.load(response)["choices"][0]["message"]
        messages += [message, {"role": "user", "content": "+"}]
        reward += (message["content"] or "").count("7")
    return reward
"""
FAULTS = {
    "die": "os.kill(os.getpid(), signal.SIGKILL)",
    "raise": "raise RuntimeError('a fault that was injected')",
    "hang": "time.sleep(1000)",
    "SIGSTOP": "os.kill(os.getpid(), signal.SIGSTOP)",
}
OF_NURSERY = "os.kill(os.getppid(), signal.{})"


def options(folder: Path, data: Path, *, process: str, fault: str, has_agent: bool, always: bool) -> dict[str, str]:
    """Write the source and a model with a chat template to a folder; return the options of a run with episodes.

    Args:
        process: one of :data:`INSIDE`, or another, whose fault comes from outside while an episode waits for it.
        always: whether every episode has the fault until the file ``healthy`` exists.
    """
    action = "wait()"
    if process == "nursery":
        action = OF_NURSERY.format(fault) + "; time.sleep(1000)"
    elif process in INSIDE:
        action = FAULTS[fault]
    elif not fault:
        action = "pass"
    source = FAULT.format(run=str(folder / "run"), fault=action, always=always) + (AGENT if has_agent else ENVIRONMENT)
    (folder / "episodes.py").write_text(source)
    model = folder / "model"
    if not model.exists():
        shutil.copytree(data / "model", model)
        (model / "chat_template.jinja").write_text(TEMPLATE)
    return {
        "model.path": str(model),
        "data.apply_chat_template": "true",
        "data.max_response_length": "24",
        "environment.path": f"{folder}/episodes.py:{'run' if has_agent else 'Game'}",
        "environment.max_turns": "3",
        "environment.max_turn_tokens": "2",
        "environment.call_timeout_s": "3" if process in INSIDE and process != "nursery" else "60",
        "environment.episode_timeout_s": "6" if process == "agent program" else "120",
        "reward.function": "",
    }
