"""Generate problems of reasoning-gym: ``python -m verl_like.data.reasoning_gym --task chain_sum,leg_counting --out
DIR/train.parquet``.

Rows have verl's schema, at the tasks' default difficulty. Different seeds share no problem draws, so validation uses
another seed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

log = logging.getLogger(__name__)

INSTRUCTION = "Give your final answer, and nothing but it, between <answer> and </answer>."
# The tasks draw problem i from seed + i: with seeds 1 and 2 themselves, all problems except one would be repeated.
SEED_STRIDE = 1_000_000
_JUNK_TIMEOUT_S = 30.0  # for each problem; most take milliseconds
_EXAMPLES = (
    "example_answer",
    "possible_answer",
    "example_correct_answer",
)  # of tasks that have many answers and so name none


def task_rows(task: str, *, size: int, seed: int, instruction: str = INSTRUCTION) -> list[dict[str, Any]]:
    """Return problems of one task; those that its scorer gets wrong are left out and counted in the log.

    Args:
        instruction: appended to each question after a blank line; empty adds nothing.

    Raises:
        ValueError: for an unknown task, one whose scorer gets more than half of the problems wrong, or a ``size`` or
            ``seed`` out of range.
    """
    from verl_like_graders.reasoning_gym import PREFIX, Problem, junk_mark
    from verl_like_graders.reasoning_gym_tasks import metadata_text, task_scorer

    if not 0 < size <= SEED_STRIDE or not 0 <= seed < 2**32 // SEED_STRIDE:
        raise ValueError(
            f"size is {size} and seed {seed}; expected 1 to {SEED_STRIDE:,} problems and a seed from 0 to "
            f"{2**32 // SEED_STRIDE - 1}."
        )
    task_scorer(task)
    rows: list[dict[str, Any]] = []
    refusals: Counter[str] = Counter()
    for index, entry in enumerate(_entries(task, size=size, seed=seed * SEED_STRIDE)):
        problem = Problem(task, entry["question"], _right_answer(entry), metadata_text(entry["metadata"]))
        try:
            junk_mark(problem, timeout_s=_JUNK_TIMEOUT_S)
        except ValueError as error:
            refusals[str(error)] += 1
            continue
        content = f"{problem.question}\n\n{instruction}" if instruction else problem.question
        rows.append(
            {
                "data_source": PREFIX + task,
                "prompt": [{"role": "user", "content": content}],
                "ability": "reasoning",
                "reward_model": {"style": "rule", "ground_truth": problem.ground_truth},
                "extra_info": {"index": index, "question": problem.question, "metadata": problem.metadata},
            }
        )
    if len(rows) < size / 2:
        raise ValueError(f"{size - len(rows)} of {size} problems of {task} cannot be scored: {next(iter(refusals))}")
    if refusals:
        log.warning(
            "%s: left out %d of %d problems that cannot be scored, such as: %s",
            task,
            size - len(rows),
            size,
            next(iter(refusals)),
        )
    return rows


def write_tasks(tasks: Sequence[str], out: Path, *, size: int, seed: int, instruction: str = INSTRUCTION) -> int:
    """Write ``size`` problems of each task to a parquet file.

    Returns:
        The number of rows.

    Raises:
        ValueError: as :func:`task_rows`, for no task, or for a file name without the suffix .parquet.
    """
    if not tasks or out.suffix != ".parquet":
        raise ValueError(
            f"the tasks are {list(tasks)} and the file is {out}; expected at least one task and a file that ends in "
            f".parquet."
        )
    rows = [row for task in tasks for row in task_rows(task, size=size, seed=seed, instruction=instruction)]
    out.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), out)
    return len(rows)


def _entries(task: str, *, size: int, seed: int) -> list[dict[str, Any]]:
    from reasoning_gym.factory import create_dataset  # type: ignore[import-untyped]

    dataset = create_dataset(task, size=size, seed=seed)
    with contextlib.redirect_stdout(io.StringIO()):  # bf prints a dot for each problem
        return [dataset[index] for index in range(size)]


def _right_answer(entry: dict[str, Any]) -> str | None:
    if entry["answer"] is not None:
        return str(entry["answer"])
    examples = [entry["metadata"][name] for name in _EXAMPLES if name in entry["metadata"]]
    if not examples:
        return None
    return examples[0] if isinstance(examples[0], str) else json.dumps(examples[0])


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Generate problems of reasoning-gym in verl's schema.")
    parser.add_argument("--task", required=True, help="a task, or several separated by commas")
    parser.add_argument("--size", type=int, default=500, help="number of problems of each task")
    parser.add_argument("--seed", type=int, default=1, help="seed of the problems")
    parser.add_argument("--instruction", default=INSTRUCTION, help="appended to each question; empty adds nothing")
    parser.add_argument("--out", type=Path, required=True, help="parquet file")
    args = parser.parse_args(argv)
    tasks = [task.strip() for task in args.task.split(",") if task.strip()]
    try:
        count = write_tasks(tasks, args.out, size=args.size, seed=args.seed, instruction=args.instruction)
    except ValueError as error:
        parser.exit(2, f"error: {error}\n")
    print(f"{args.out}: {count} rows")  # noqa: T201 (a command's result)


if __name__ == "__main__":
    main()
