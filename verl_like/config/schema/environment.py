"""The section ``environment``: episodes of several turns with tools, an environment or an agent program."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema.fields import non_negative, option, positive
from verl_like.config.section import Section


@dataclass(kw_only=True)
class EnvironmentConfig(Section):
    path: str = option(
        "",
        "`path/to/file.py:name` of an environment class, a function that makes one, or an agent program; empty for "
        "none.",
    )
    tools: str = option("", "`path/to/file.py` of tools: typed functions, or verl's tools.")
    python: str = option("", "Interpreter that runs the file; empty uses the run's own.")
    reward_weight: float = option(
        1.0, "Weight of the environment's reward in the score.", check=lambda v: v == v, expected="a number"
    )
    history: str = option(
        "auto",
        "How a context continues after a turn: auto keeps the tokens if the chat template keeps the turn, append "
        "always keeps them, fork starts another row wherever the template writes anything else.",
        choices=("auto", "append", "fork"),
    )
    tool_parser: str = option(
        "auto", "Parser of tool calls: hermes, openai, or a name of vLLM's; auto chooses by template."
    )
    reasoning_parser: str = option(
        "auto", "Parser of reasoning: think (</think>), or a name of vLLM's; auto chooses by template."
    )
    max_turns: int = positive(8, "Turns of the policy in an episode.", unit="turns")
    max_turn_tokens: int = non_negative(
        0, "Sampled tokens of one turn; 0 divides max_episode_tokens evenly among max_turns.", unit="tokens"
    )
    max_tool_tokens: int = positive(256, "Longest result of a tool; a longer one is cut, with a mark.", unit="tokens")
    max_episode_tokens: int = non_negative(
        0, "All tokens after the first prompt, sampled or not; 0 means data.max_response_length.", unit="tokens"
    )
    episodes_per_process: int = positive(
        64,
        "Episodes that a process serves, one after the other, if each has left no thread, task or process; 1 "
        "starts a process for each.",
        unit="episodes",
    )
    max_processes: int = positive(
        1024, "Processes of episodes at once per engine; further episodes wait.", unit="processes"
    )
    call_timeout_s: float = positive(30.0, "Timeout of one call to the environment.", unit="seconds")
    episode_timeout_s: float = positive(
        300.0, "Timeout of an episode, generation included; it then ends as failed.", unit="seconds"
    )
    start_timeout_s: float = positive(60.0, "Timeout for loading the file.", unit="seconds")
    max_memory_gib: float = positive(
        4.0, "Address space that an episode's process may add after the file has been loaded.", unit="GiB"
    )
    max_message_mib: float = positive(8.0, "Largest answer of the environment to one call.", unit="MiB")

    @property
    def is_used(self) -> bool:
        """Whether episodes have an environment or tools."""
        return bool(self.path or self.tools)
