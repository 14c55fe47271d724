"""From the words in the configuration to a reward function."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from verl_like.config.user_code import from_file
from verl_like.reward.forms import RewardFunction

_FUNCTIONS = "verl_like.reward.functions."

# Names for reward.function, and values of data_source that choose a function where reward.function is empty. A source
# that is not here is looked up by what stands before its first slash. Modules are imported when they are chosen.
BUILT_IN: dict[str, str] = {
    "gsm8k": "gsm8k:compute_score",
    "openai/gsm8k": "gsm8k:compute_score",
    "exact_match": "exact_match:compute_score",
    "arithmetic": "exact_match:compute_score",
    "math": "math_answer:compute_score",
    "lighteval/MATH": "math_answer:compute_score",
    "DigitalLearningGmbH/MATH-lighteval": "math_answer:compute_score",
    "HuggingFaceH4/MATH-500": "math_answer:compute_score",
    "math_dapo": "math_answer:compute_score",
    "aime": "math_answer:compute_score",
    "choice": "choice:compute_score",
    "code": "code:compute_score",
    "code_contests": "code:compute_score",
    "apps": "code:compute_score",
    "taco": "code:compute_score",
    "codeforces": "code:compute_score",
    "format": "text_format:compute_score",
    "length": "length:compute_score",
    "repetition": "repetition:compute_score",
    "remote_http": "remote_http:compute_score",
    "llm_judge": "llm_judge:compute_score",
    "reasoning_gym": "reasoning_gym:compute_score",
}


def resolve(function: str, data_source: str | None = None, *, knob: str = "reward.function") -> RewardFunction:
    """The reward function for a row.

    Args:
        function: ``path/to/file.py:name``, a key of ``BUILT_IN``, or "" to choose by ``data_source``.
        data_source: of the row; needed where ``function`` is empty.
        knob: the configuration key that named the function, for messages.

    Raises:
        ValueError: for an unknown name, or a file that does not give a function; a failed import shows its traceback.
    """
    if ":" in function:
        path, _, name = function.rpartition(":")
        return from_file(Path(path).expanduser(), name, knob=knob)  # type: ignore[no-any-return]
    if function:
        if function not in BUILT_IN:
            raise ValueError(f"{knob} is {function!r}; expected path/to/file.py:name, or one of {', '.join(BUILT_IN)}.")
        return _built_in(function)
    for source in (data_source, (data_source or "").partition("/")[0]):
        if source in BUILT_IN:
            return _built_in(source)
    raise ValueError(
        f"no reward function is known for data_source {data_source!r}; known are {', '.join(BUILT_IN)}. "
        f"Set {knob}=path/to/file.py:name, or correct the data's data_source column (data.data_source where it has "
        f"none)."
    )


def _built_in(name: str) -> RewardFunction:
    module, _, attribute = BUILT_IN[name].partition(":")
    function: RewardFunction = vars(import_module(_FUNCTIONS + module))[attribute]
    return function
