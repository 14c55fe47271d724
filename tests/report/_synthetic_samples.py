"""Synthetic samples of a step: answers to sums, some that failed, hostile texts in step 1, episodes in step 2."""

from __future__ import annotations

import random
import statistics
from typing import Any

from tests.report._hostile import HOSTILE
from verl_like.report.sample_entry import MAX_CHARS

ROWS_WITH_TOKENS = 48
GROUP = 8
WORDS = (
    *(" so", " we", " add", " the", " first", " number", " and", " carry", " one", " then", " check", " again", ","),
    *(
        " because",
        " this",
        " gives",
        " twelve",
        ".\n",
        " Let",
        " me",
        " count",
        " tens",
        " units",
        " total",
        " is",
        " wait",
    ),
)


def samples_of_step(step: int, num_rows: int, *, rise: float) -> list[dict[str, Any]]:
    """Return the samples of a step in groups of eight; ``rise`` in 0 to 1 is the part that answers correctly."""
    generator = random.Random(step)
    found = [_sample(generator, step=step, row=row, rise=rise) for row in range(num_rows)]
    for start in range(0, num_rows, GROUP):
        group = found[start : start + GROUP]
        scores = [sample["score"] or 0.0 for sample in group]
        mean, std = statistics.fmean(scores), statistics.pstdev(scores)
        for sample, score in zip(group, scores, strict=True):
            sample["advantage"] = round((score - mean) / (std + 1e-6), 4)
            if sample["tokens"]:
                sample["tokens"]["columns"]["advantage"] = [sample["advantage"]] * len(sample["tokens"]["text"])
    if step == 1:
        found[: len(HOSTILE)] = [_hostile(sample, text) for sample, text in zip(found, HOSTILE, strict=False)]
    if step == 2:
        found[:2] = _episodes(found[:2])
    return found


def _sample(generator: random.Random, *, step: int, row: int, rise: float) -> dict[str, Any]:
    group = row // GROUP
    left, right = (step * 37 + group * 11) % 90 + 10, (step * 17 + group * 29) % 90 + 10
    num = generator.randrange(20, 90)
    tokens = ["Let", " me", " think", ":", *generator.choices(WORDS, k=num)]
    is_right = generator.random() < rise
    has_failed = generator.random() < 0.004
    answer = left + right if is_right else left + right + generator.randrange(1, 20)
    tokens += [" The", " answer", " is", " ", str(answer), "."]
    score = None if has_failed else (1.0 if is_right else generator.choice([0.0, 0.0, 0.1]))
    return {
        "prompt": f"A shelf holds {left} red and {right} blue books. How many books are on the shelf? "
        "Think step by step, then answer.",
        "response": "".join(tokens),
        "ground_truth": str(left + right),
        "score": score,
        "failure": "timeout: the function took longer than 10 s" if has_failed else None,
        "seconds": round(generator.gammavariate(2, 0.01), 4),
        "components": {"correct": float(is_right), "format": 1.0},
        "source": "arithmetic/books" if group % 3 else "arithmetic/shelves",
        "uid": f"{group:04d}",
        "finish": "length" if num > 85 else "stop",
        "length": len(tokens),
        "advantage": 0.0,
        "extra": {"difficulty": str(group % 5)},
        "cut": {},
        "messages": None,
        "num_prompt_messages": 0,
        "earlier": [],
        "tokens": _tokens(generator, tokens, step) if row < ROWS_WITH_TOKENS else None,
    }


def _tokens(generator: random.Random, texts: list[str], step: int) -> dict[str, Any]:
    num = len(texts)
    deviations = [0.02] * 19 + [0.14]
    return {
        "text": texts,
        "columns": {
            "log_prob_gap": [round(generator.gauss(0, generator.choice(deviations)), 4) for _ in texts],
            "entropy": [round(generator.expovariate(1.6), 3) for _ in texts],
            "version": [step - 1 if at < num // 2 else step for at in range(num)],
        },
    }


def _hostile(sample: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a sample with the text in every field that a page shows; a long one is cut."""
    short = text[:2000]
    return sample | {
        "prompt": text[:MAX_CHARS],
        "response": text[:MAX_CHARS],
        "ground_truth": short,
        "failure": short[:300],
        "components": {short[:60]: short[:100]},
        "extra": {short[:60]: short},
        "cut": {"prompt": len(text) - MAX_CHARS} if len(text) > MAX_CHARS else {},
        "tokens": {
            "text": [short[at : at + 7] for at in range(0, len(short), 7)],
            "columns": {"entropy": [0.5] * ((len(short) + 6) // 7)},
        },
    }


SYSTEM = {
    "role": "system",
    "content": "You are a careful assistant with a calculator.",
    "reasoning": None,
    "calls": [],
    "name": None,
}
QUESTION = {"role": "user", "content": "What is 1234 * 5678?", "reasoning": None, "calls": [], "name": None}


def _turn(content: str, *, reasoning: str | None = None, expression: str | None = None) -> dict[str, Any]:
    calls = [{"name": "calculator", "arguments": f'{{"expression": "{expression}"}}'}] if expression else []
    return {"role": "assistant", "content": content, "reasoning": reasoning, "calls": calls, "name": None}


def _result(content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "reasoning": None, "calls": [], "name": "calculator"}


def _episodes(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return an episode with three contexts, and one with a single context."""
    first = _turn(
        "", reasoning="I should not multiply this by hand. The calculator is exact.", expression="1234 * 5678"
    )
    error = _result("error: <b>unknown operator</b> \x1b[31m*\x1b[0m")
    second = _turn("The tool failed; I try again.", expression="1234*5678")
    summary = {
        "role": "user",
        "content": "Summary of the episode so far: the calculator was called twice.",
        "reasoning": None,
        "calls": [],
        "name": None,
    }
    last = _turn("1234 \u00d7 5678 = 7,006,652.")
    contexts = [
        [SYSTEM, QUESTION, first, error, second, _result("7006652")],
        [SYSTEM, QUESTION, summary, last],
        [SYSTEM, QUESTION, summary, _turn("Shall I show the steps?"), {**QUESTION, "content": "No, thank you."}, last],
        [SYSTEM, QUESTION, first, _result("7006652"), last],
    ]
    *earlier, last_one, single = map(_context, contexts)
    return [samples[0] | last_one | {"earlier": earlier}, samples[1] | single]


def _context(messages: list[dict[str, Any]]) -> dict[str, Any]:
    texts = [piece for each in messages[2:] for piece in (each["content"] or each["calls"][0]["arguments"]).split(" ")]
    of_policy = [number for number, each in enumerate(messages) if each["role"] == "assistant"]
    turns = {
        number: {"index": index, "tokens": 20 + number, "reward": 0.5 * number}
        for index, number in enumerate(of_policy)
    }
    mask = [int(len(piece) % 4 != 0) for piece in texts]
    return {
        "messages": [each | ({"turn": turns[at]} if at in turns else {}) for at, each in enumerate(messages)],
        "num_prompt_messages": 2,
        "tokens": {
            "text": [f"{piece} " for piece in texts],
            "columns": {"advantage": [0.25 * (len(piece) % 7 - 3) for piece in texts], "mask": mask},
        },
    }
