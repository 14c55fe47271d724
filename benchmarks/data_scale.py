"""Measure how soon a large data set is ready and what it takes in the driver: ``python -m benchmarks.data_scale``.

Rows have prompts of about 60 tokens, an answer, a data source and an ``extra_info``; in parquet files the prompts are
chats, in jsonl files texts. A tokenizer is trained on the documentation. Each start is a fresh process that reads,
checks, renders and tokenises the prompts as ``verl-like train`` does: first with an empty cache, then with the one that
the first start has written. Memory is the resident peak (mapped files included), after an epoch has been drawn too,
above that of the same process once it has read one prompt. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._machine import print_result

ROWS = (100_000, 300_000)
PROMPT_WORDS, ANSWER_WORDS = 26, 12
BATCH = 128
SUFFIXES = (".parquet", ".jsonl")


def write_files(folder: Path, num_rows: int) -> None:
    """Write the rows as parquet and as jsonl, and one row of each as ``one``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks._agent_model import text

    rng = np.random.default_rng(0)
    words = np.array([word for word in dict.fromkeys(text().split()) if word.isalpha()])

    def row(index: int) -> dict[str, Any]:
        question, steps = (" ".join(rng.choice(words, count)) for count in (PROMPT_WORDS, ANSWER_WORDS))
        number = str(rng.integers(10_000))
        return {
            "data_source": "problems",
            "prompt": f"{question}, what is number {index}?",
            "answer": f"{steps}\n#### {number}",
            "extra_info": {"split": "train", "index": index},
        }

    def as_chat(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "prompt": [{"role": "user", "content": row["prompt"]}]}

    rows = [row(index) for index in range(num_rows)]
    for name, chosen in (("one", rows[:1]), ("rows", rows)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
        pq.write_table(pa.Table.from_pylist([as_chat(row) for row in chosen]), folder / f"{name}.parquet")


def memory(field: str) -> int:
    """Return a field of this process's status in bytes: VmRSS is resident now, VmHWM the peak of it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [value] = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(value) * 1024


def start(folder: Path, suffix: str) -> None:
    """Read the rows as a run does, and print the seconds and the bytes per row."""
    from verl_like.config.compose import compose
    from verl_like.training.tasks import num_steps, prompt_loader, tokenizer_of, train_prompts

    def config_of(name: str) -> Any:
        return compose(
            None,
            [
                f"model.path={folder}/tokenizer",
                f"data.train_files=[{folder}/{name}{suffix}]",
                f"data.prompt_cache={folder}/cache",
                f"data.train_batch_size={BATCH if name == 'rows' else 1}",
            ],
        ).config

    one, config = config_of("one"), config_of("rows")
    tokenizer = tokenizer_of(config)
    prompt_loader(one, train_prompts(one, tokenizer)).next_batch()  # everything is loaded now
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again
    started = time.perf_counter()
    prompts = train_prompts(config, tokenizer)
    loader = prompt_loader(config, prompts)
    assert num_steps(config, loader) > 0, "an epoch has no step"
    seconds, peak = time.perf_counter() - started, memory("VmHWM") - before
    started = time.perf_counter()
    lengths = [len(prompt.prompt_ids) for _ in range(loader.batches_per_epoch) for prompt in loader.next_batch()]
    epoch_s = time.perf_counter() - started
    found = {
        "seconds": seconds,
        "peak_bytes_per_row": peak / len(prompts),
        "peak_bytes_per_row_after_epoch": (memory("VmHWM") - before) / len(prompts),
        "batch_ms": 1e3 * epoch_s / loader.batches_per_epoch,
        "tokens_per_prompt": sum(lengths) / len(lengths),
    }
    print(json.dumps(found))


def measured(folder: Path, suffix: str) -> dict[str, float]:
    """Return the figures of a start in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.data_scale", "--start", str(folder), suffix]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def case(num_rows: int) -> dict[str, Any]:
    """Return the figures of both formats with this number of rows."""
    from benchmarks._agent_model import tokenizer

    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer("").save_pretrained(folder / "tokenizer")
        write_files(folder, num_rows)
        for suffix in SUFFIXES:
            starts = [measured(folder, suffix) for _ in ("first", "second")]
            file_bytes = (folder / f"rows{suffix}").stat().st_size / num_rows
            found[suffix[1:]] = {"first": starts[0], "second": starts[1], "file_bytes_per_row": file_bytes}
    return found


def kilobytes(cases: list[tuple[int, dict[str, Any]]], start: str) -> float:
    """Return the KB per row of the worst case, when all prompts have been drawn once."""
    return max(float(each[start]["peak_bytes_per_row_after_epoch"]) for _, each in cases) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--start", nargs=2, metavar=("FOLDER", "SUFFIX"), help="measure one start in this process")
    arguments = parser.parse_args()
    if arguments.start:
        start(Path(arguments.start[0]), arguments.start[1])
        return
    by_rows = {num_rows: case(num_rows) for num_rows in arguments.rows}
    cases = [(num_rows, figures) for num_rows, formats in by_rows.items() for figures in formats.values()]
    print_result(
        {
            "kb_per_row": kilobytes(cases, "second"),
            "kb_per_row_first_start": kilobytes(cases, "first"),
            "seconds_per_100k_second_start": max(each["second"]["seconds"] / n * 1e5 for n, each in cases),
            "seconds_per_100k_first_start": max(each["first"]["seconds"] / n * 1e5 for n, each in cases),
            "by_rows": by_rows,
        }
    )


if __name__ == "__main__":
    main()
