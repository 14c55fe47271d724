"""What needs no model is answered without the libraries that models need, and within a second."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.unit._weights import NO_WEIGHTS

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "ray", "vllm"}
# CPU time in units of YARDSTICK, which is measured next to it: how fast a core is differs between machines, and on a
# shared machine from one minute to the next by a factor of two. Measured: 0.8 for --help, 3.5 for config, 4 for wrong
# input.
YARDSTICK = """
import argparse, inspect
for module in (argparse, inspect):
    source = inspect.getsource(module)
    for _ in range(3):
        compile(source, "module", "exec")
"""
COMMAND = "import verl_like.__main__ as program; raise SystemExit(program.main())"
MAX_HELP, MAX_CONFIG, MAX_REFUSAL = 1.5, 5.5, 6.5
RECIPE = "recipes/arithmetic/grpo.yaml"


def reported(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run ``verl-like WORDS`` in a separate process, which prints its loaded modules at the end."""
    code = (
        "import json, sys\n"
        "from verl_like.cli import main\n"
        "try:\n"
        "    status = main(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    status = end.code\n"
        "print(json.dumps([status, sorted(sys.modules)]))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, cwd=ROOT, check=True
    )


def cpu_seconds(code: str, *words: str) -> float:
    """Return the CPU time of an interpreter that runs this code.

    Processes that it starts are not included: the fork server of a run imports on another core, and is killed when the
    run is refused.
    """
    with tempfile.NamedTemporaryFile("r") as file:
        atend = f"open({file.name!r}, 'w').write(str(time.process_time()))"
        program = f"import atexit, time; atexit.register(lambda: {atend})\n{code}"
        subprocess.run([sys.executable, "-c", program, *words], capture_output=True, timeout=60, cwd=ROOT, check=False)
        return float(file.read())


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--help"], 0),
        (["config", RECIPE, "rollout.n=4"], 0),
        (["config", RECIPE, "algorithm.adv_estimator=grop"], 2),
        (["train", RECIPE, "model.path=/nowhere"], 2),
        (["train", RECIPE, "rollout.temprature=1"], 2),
        (["sft", RECIPE, "sft.loss_on=nothing"], 2),
        (["eval", "model.path=Qwen/Qwen3-0.6B", f"data.val_files=[{__file__}l]", "cluster.device=cpu"], 2),
        (["generate", RECIPE, "trainer.resume=/nowhere"], 2),
        (["export", "/nowhere"], 2),
        (["rescore", "/nowhere"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_answer_that_needs_no_model_loads_nothing_heavy(words: list[str], status: int) -> None:
    found, modules = json.loads(reported(words).stdout.splitlines()[-1])
    assert found == status
    assert not HEAVY & set(modules)


def test_a_run_that_is_not_there_is_refused_without_anything_heavy(tmp_path: Path) -> None:
    rows, model = tmp_path / "rows.jsonl", tmp_path / "model"
    rows.touch()
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(NO_WEIGHTS)
    words = ["eval", f"model.path={model}", f"data.val_files=[{rows}]", f"trainer.output_dir={tmp_path}"]
    answer = reported([*words, "cluster.device=cpu"])
    found, modules = json.loads(answer.stdout.splitlines()[-1])
    assert found == 2 and "holds no checkpoint to evaluate" in answer.stderr
    assert not HEAVY & set(modules)


def test_a_column_that_the_rows_lack_is_reported_without_models(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n')
    words = ["train", "model.path=gpt2", f"data.train_files=[{tmp_path}/rows.jsonl]", "cluster.device=cpu"]
    answer = reported([*words, f"trainer.output_dir={tmp_path}/out"])
    found, modules = json.loads(answer.stdout.splitlines()[-1])
    assert found == 2 and "data.prompt_key is 'prompt', but row 0 of" in answer.stderr
    assert not HEAVY & set(modules)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (["--help"], MAX_HELP),
        (["config", RECIPE], MAX_CONFIG),
        (["train", RECIPE, "model.path=/nowhere", "algorithm.adv_estimator=grop"], MAX_REFUSAL),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_answer_that_needs_no_model_is_quick(words: list[str], limit: float) -> None:
    taken = [(cpu_seconds(COMMAND, *words), cpu_seconds(YARDSTICK)) for _ in range(3)]
    assert min(command for command, _ in taken) < limit * min(yardstick for _, yardstick in taken)
