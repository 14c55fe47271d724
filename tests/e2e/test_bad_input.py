"""Wrong input: one message that says what was found, what works and what to do;
and nothing is started or overwritten.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer

from tests._tiers import slow_but
from tests.e2e.conftest import arguments
from verl_like.checks.manifest import write_manifest
from verl_like.cli import main
from verl_like.config.compose import compose
from verl_like.runs.folder import RunFolder
from verl_like.telemetry.trackers import read_metrics


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(capsys: pytest.CaptureFixture[str], data: Path, out: Path, *overrides: str, command: str = "train") -> str:
    """Return the one line with which the command is refused, and check that it wrote nothing."""
    before = files(out)
    assert main([command, *arguments(data, out, *overrides)]) == 2
    assert files(out) == before
    message = capsys.readouterr().err
    error = message[message.index("error: ") :].removeprefix("error: ").strip()
    assert "Traceback (most recent call last)" not in error or "importing" in error
    return error


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (
            ["model.path=/no/such/model"],
            ["model.path is /no/such/model, but there is no such folder", "Correct the path, or give a hub name"],
        ),
        (["model.path=''"], ["model.path is empty", "Set model.path to a folder or a hub name"]),
        (
            ["data.apply_chat_template=true"],
            [
                "data.apply_chat_template is true, but the tokenizer",
                "has no chat template",
                "Set data.apply_chat_template=false",
            ],
        ),
        (["data.train_files=[nowhere.parquet]"], ["data.train_files holds nowhere.parquet, which does not exist"]),
        (
            ["data.prompt_key=question"],
            [
                "data.prompt_key is 'question', but row 0 of",
                "it has ['answer', 'data_source', 'prompt']",
                "Set data.prompt_key to one of these",
            ],
        ),
        (
            ["data.answer_key=solution"],
            ["neither reward_model.ground_truth nor the column data.answer_key='solution'", "Set data.answer_key"],
        ),
        (
            ["actor.mini_batch_size=3"],
            [
                "data.train_batch_size is 8 prompts, which actor.mini_batch_size=3 does not divide",
                "Set actor.mini_batch_size=2",
            ],
        ),
        (
            ["data.train_batch_size=4096", "actor.mini_batch_size=4096"],
            ["but a batch needs data.train_batch_size=4096", "Set data.train_batch_size="],
        ),
        (
            ["rollout.n=1"],
            [
                "rollout.n is 1, but algorithm.adv_estimator=grpo compares siblings and needs at least 2",
                "Set rollout.n=8",
            ],
        ),
        (
            ["data.max_prompt_length=3"],
            [
                "has a prompt of",
                "but data.max_prompt_length is 3",
                "rows are too long",
                "Set data.max_prompt_length=",
                "data.overlong_prompts=drop or truncate",
            ],
        ),
        (
            ["rollout.tensor_parallel_size=4", "cluster.workers_per_node=2"],
            [
                "rollout.tensor_parallel_size is 4, which is more than the 2 workers of a node",
                "Set it to a divisor of 2",
            ],
        ),
        (["cluster.device=cuda", "cluster.workers_per_node=64"], ["GPU", "Set cluster."]),
        (
            ["trainer.resume=/no/such/checkpoint"],
            ["trainer.resume is /no/such/checkpoint, but must be auto, never or the folder of a checkpoint"],
        ),
        (
            ["trainer.output_dir=/proc/outputs"],
            ["/proc/outputs/default cannot be written: ", "hoose another location: trainer.output_dir."],
        ),
        (["algorithm.adv_estimator=grop"], ["algorithm.adv_estimator=grop", "grpo, grpo_passk"]),
        (["rollout.top_p=3"], ["rollout.top_p is 3", "but must be a number above 0, at most 1"]),
        (["rollout.temprature=0.5"], ["unknown key rollout.temprature", "did you mean rollout.temperature?"]),
        (["rollout.n=many"], ["rollout.n is 'many' (command line), but must be an integer"]),
        (
            ["reward.function=/no/such/file.py:score"],
            ["reward.function is /no/such/file.py:score, but there is no file"],
        ),
        (
            ["reward.function=gms8k"],
            ["reward.function is 'gms8k'; expected path/to/file.py:name, or one of gsm8k, ", "; did you mean gsm8k?"],
        ),
        (
            ["data.max_response_length=100000"],
            [
                "data.max_prompt_length=8 + data.max_response_length=100000 are 100008 tokens, but model.path=",
                "reads at most 64 (max_position_embeddings in its config.json)",
                "Shorten the rows, e.g. data.max_response_length=56",
            ],
        ),
        (
            ["model.override_config={head_dim: 48}"],
            ["have 48 dimensions, but vLLM on CPU has kernels for 32, 64,", "Set rollout.backend=hf, or run on a GPU"],
        ),
        (
            ["rollout.tensor_parallel_size=4", "cluster.workers_per_node=4"],
            [
                "rollout.tensor_parallel_size is 4, which does not divide the 2 attention heads of model.path=",
                "Set rollout.tensor_parallel_size=2",
            ],
        ),
        (
            ["ref.path=./nowhere", "actor.kl_loss_coef=0.1"],
            ["ref.path is ./nowhere, but there is no such folder", "Correct the path"],
        ),
        (
            ["critic.path=./nowhere", "algorithm.adv_estimator=gae"],
            ["critic.path is ./nowhere, but there is no such folder", "Correct the path"],
        ),
        (
            ["trainer.best_metric=val/accuracy", "trainer.test_freq=1"],
            ["trainer.best_metric is 'val/accuracy', but validation gives val/mean@1, val/pass@1", "Choose one of"],
        ),
        (
            ["trainer.best_metric=val/arithmetik/mean@1", "trainer.test_freq=1"],
            ["'val/arithmetik/mean@1', but validation gives val/mean@1,", "; did you mean val/mean@1?"],
        ),
        (
            ["trainer.best_metric=val/mean@1"],
            ["trainer.test_freq=0 and trainer.val_before_train=false turn validation off", "Set trainer.test_freq"],
        ),
        (
            ["data.prompt_key=プロンプト"],
            ["data.prompt_key is 'プロンプト', but row 0 of", "Set data.prompt_key to one"],
        ),
    ],
    ids=lambda value: value[0] if "=" in value[0] else "",
)
def test_a_configuration_that_cannot_work_is_refused(
    overrides: list[str], parts: list[str], arithmetic: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, arithmetic, out, *overrides)
    for part in parts:
        assert part in message
    assert not out.exists(), "a refused run has no folder"


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_an_empty_dataset_is_refused(
    suffix: str, arithmetic: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / f"empty.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"prompt": pa.array([], pa.string()), "answer": pa.array([], pa.string())}), empty)
    else:
        empty.write_text("\n")
    message = refusal(capsys, arithmetic, out, f"data.train_files=[{empty}]")
    assert "the dataset is empty" in message and str(empty) in message and "expected at least one" in message
    assert not out.exists()


def test_a_model_folder_without_config_or_tokenizer_is_refused(
    arithmetic: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    message = refusal(capsys, arithmetic, out, f"model.path={tmp_path}/model")
    assert f"model.path is {tmp_path}/model, a folder without config.json" in message
    (tmp_path / "model/config.json").write_text("{")
    message = refusal(capsys, arithmetic, out, f"model.path={tmp_path}/model")
    assert "whose config.json is not a JSON mapping" in message
    (tmp_path / "model/config.json").unlink()
    (tmp_path / "model/config.json").symlink_to(arithmetic / "model/config.json")
    message = refusal(capsys, arithmetic, out, f"model.path={tmp_path}/model")
    assert f"model.path is {tmp_path}/model, a folder without weights in safetensors files" in message
    (tmp_path / "model/model.safetensors").symlink_to(arithmetic / "model/model.safetensors")
    message = refusal(capsys, arithmetic, out, f"model.path={tmp_path}/model")
    assert f"no tokenizer could be loaded from {tmp_path}/model" in message and "Set model.tokenizer_path" in message


def test_a_chat_template_makes_the_same_rows_acceptable(arithmetic: Path, tmp_path: Path) -> None:
    """Check the remedy that the message about chat templates names."""
    from verl_like.data.files import read_rows
    from verl_like.data.prompts import PromptDataset

    tokenizer = AutoTokenizer.from_pretrained(arithmetic / "model")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    composed = compose(None, arguments(arithmetic, tmp_path, "data.apply_chat_template=true"))
    assert len(PromptDataset(read_rows(composed.config.data.train_files), composed.config.data, tokenizer)) > 0


# --- rewards


REWARD_FILES = {
    "import": ("import no_such_module\n", ["importing", "No module named 'no_such_module'", "Correct the file"]),
    "syntax": ("def score(:\n", ["importing", "SyntaxError", "Correct the file"]),
    "name": ("def other():\n    pass\n", ["defines no 'score'", "its functions are ['other']"]),
    "not-callable": ("score = 3\n", ["'score' in", "is a int, not a function"]),
    "signature": (
        "def score(answer):\n    return 1.0\n",
        [
            "has the signature (answer), which is none of the known forms",
            "OpenRLHF: reward_func(queries, prompts, labels)",
        ],
    ),
    "nan": (
        "def score(solution_str):\n    return float('nan')\n",
        ["was tried on prompt", "returned nan", "Correct the function"],
    ),
    "none": ("def score(solution_str):\n    return None\n", ["was tried on prompt", "returned None (NoneType)"]),
    "text": ("def score(solution_str):\n    return 'good'\n", ["was tried on prompt", "returned 'good' (str)"]),
    "short-list": (
        "def score(prompts, completions, **columns):\n    return [1.0]\n",
        ["was tried on prompt", "length 1 for 2 samples"],
    ),
    "long-list": (
        "def score(prompts, completions, **columns):\n    return [1.0, 1.0]\n",
        ["was tried on prompt", "length 2 for 1 samples"],
    ),
    "endless": (
        "def score(solution_str):\n    while True: pass\n",
        ["was tried on prompt", "(timeout)", "no score within reward.timeout_s=2"],
    ),
    "exit": ("import os\nos._exit(3)\n", ["cannot be used", "exited with code 3"]),
}


@pytest.mark.parametrize(
    ("source", "parts"), slow_but({"exit", "import", "nan", "signature", "short-list"}, REWARD_FILES.items())
)
def test_a_reward_file_that_does_not_load_is_refused_before_anything_starts(
    source: str, parts: list[str], arithmetic: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reward.py").write_text(source)
    message = refusal(capsys, arithmetic, out, f"reward.function={tmp_path}/reward.py:score", "reward.timeout_s=2")
    for part in [f"{tmp_path}/reward.py", *parts]:
        assert part in message
    assert not out.exists()


@pytest.mark.parametrize("key", ["train_files", "val_files"])
def test_rows_that_no_reward_is_known_for_are_refused_at_the_start(
    key: str, arithmetic: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"prompt": "1+1=", "answer": "2", "data_source": source} for source in ["arithmetic"] * 8 + ["riddles"]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    validates = ["trainer.test_freq=1"] if key == "val_files" else []
    message = refusal(capsys, arithmetic, out, "reward.function=''", f"data.{key}=[{tmp_path}/rows.jsonl]", *validates)
    assert "no reward function is known for data_source 'riddles'; known are gsm8k, " in message
    assert "Set reward.function=path/to/file.py:name" in message
    assert not out.exists()


def test_a_reward_that_fails_on_every_sample_ends_the_run_and_keeps_the_finished_steps(
    arithmetic: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str], ray_cluster: None
) -> None:
    (tmp_path / "reward.py").write_text(
        "calls = 0\n"
        "def score(data_source, solution_str, ground_truth, extra_info):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    return len(solution_str) if calls <= 32 else solution_str.no_such_attribute\n"
    )
    reward = f"reward.function={tmp_path}/reward.py:score"
    status = main(["train", *arguments(arithmetic, out, reward, "data.val_files=[]", "rollout=hf")])
    message = capsys.readouterr().err
    assert status == 1
    assert "error: 32 of 32 responses have no score (32 error), and no scored response is left. The first 3:" in message
    assert "has no attribute 'no_such_attribute'" in message and "prompt: '" in message and "response: '" in message
    run = out / "default"
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_1"]
    assert sorted(read_metrics(run / "metrics.jsonl")["reward/score_mean"]) == [1]
    failure = json.loads((run / "samples/reward_failures.jsonl").read_text().splitlines()[0])
    assert "no_such_attribute" in failure["message"]


def test_a_validation_metric_that_is_not_there_ends_the_run_and_keeps_the_finished_steps(
    arithmetic: Path, out: Path, capsys: pytest.CaptureFixture[str], ray_cluster: None
) -> None:
    status = main(
        [
            "train",
            *arguments(
                arithmetic,
                out,
                "trainer.best_metric=val/arithmetic/accuracy/mean@1",  # a detail, which only scoring can show
                "trainer.test_freq=1",
                "rollout.val.n=1",
                "rollout=hf",
            ),
        ]
    )
    message = capsys.readouterr().err
    assert status == 1
    assert "error: trainer.best_metric is 'val/arithmetic/accuracy/mean@1', but validation gives [" in message
    assert "val/arithmetic/length/mean@1" in message
    assert [path.name for path in (out / "default/checkpoints").iterdir()] == ["step_1"]


# --- folders


@pytest.fixture
def other_run(arithmetic: Path, out: Path) -> RunFolder:
    """Return the folder of a run with five responses to a prompt, after one step."""
    composed = compose(None, arguments(arithmetic, out, "rollout.n=5"))
    folder = RunFolder(composed.config)
    folder.claim(composed.yaml(), job="train")
    folder.metrics.write_text('{"step": 1, "reward/score_mean": 0.5}\n')
    (folder.checkpoints / "step_1").mkdir()
    (folder.checkpoints / "step_1/trainer.json").write_text('{"job": "train", "step": 1}')
    write_manifest(folder.checkpoints / "step_1")
    return folder


def test_the_folder_of_another_run_is_refused(
    arithmetic: Path, out: Path, other_run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, arithmetic, out)
    assert f"{other_run.path} is the folder of another run; it differs in rollout.n (5 there, 4 here)" in message
    assert "Choose another trainer.experiment_name, or move the folder away" in message


def test_supervised_training_into_the_folder_of_another_run_is_refused(
    arithmetic: Path, out: Path, other_run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(
        capsys, arithmetic, out, "rollout.n=5", f"data.train_files=[{arithmetic}/sft.parquet]", command="sft"
    )
    assert "the command (verl-like train there, verl-like sft here)" in message


def test_a_used_folder_is_refused_under_resume_never(
    arithmetic: Path, out: Path, other_run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, arithmetic, out, "rollout.n=5", "trainer.resume=never")
    assert (
        f"{other_run.path} already holds a run, and trainer.resume=never. Choose another trainer.experiment_name"
        in message
    )


def test_a_folder_that_is_no_checkpoint_is_refused(
    arithmetic: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, arithmetic, out, f"trainer.resume={tmp_path}")
    assert (
        f"trainer.resume is {tmp_path}, but must be auto, never or the folder of a checkpoint, and that folder has no "
        "trainer.json"
    ) in message
    assert "Give a .../checkpoints/step_N folder" in message


def test_branching_off_a_checkpoint_that_was_pruned_lists_those_that_are_left(
    arithmetic: Path, out: Path, other_run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, arithmetic, out, f"trainer.resume={other_run.checkpoints}/step_80")
    assert message.endswith(f"and no such folder exists. {other_run.checkpoints} holds step_1: name one of these.")


def test_continuing_from_the_middle_of_a_run_in_its_own_folder_is_refused(
    arithmetic: Path, out: Path, other_run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (other_run.checkpoints / "step_2").mkdir()
    (other_run.checkpoints / "step_2/trainer.json").write_text('{"job": "train", "step": 2}')
    write_manifest(other_run.checkpoints / "step_2")
    message = refusal(capsys, arithmetic, out, "rollout.n=5", f"trainer.resume={other_run.checkpoints}/step_1")
    assert "is step 1, but" in message and "holds step_2 of another continuation" in message


@pytest.mark.parametrize("command", ["eval", "generate"])
def test_evaluating_without_rows_is_refused(
    command: str, arithmetic: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, arithmetic, out, "data.val_files=[]", command=command)
    assert "data.val_files is empty, so there are no rows to validate on" in message


def test_supervised_training_on_less_than_a_batch_is_refused(
    arithmetic: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "1+1=", "answer": "2"}) + "\n")
    message = refusal(capsys, arithmetic, out, f"data.train_files=[{tmp_path}/rows.jsonl]", command="sft")
    assert (
        "the dataset has 1 rows, but a batch needs data.train_batch_size=8. Set data.train_batch_size=1 or less"
        in message
    )


def test_export_of_what_is_no_checkpoint_is_refused(
    tmp_path: Path, other_run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(tmp_path), str(tmp_path / "model")]) == 2
    assert f"found no checkpoint at {tmp_path}: that folder has no trainer.json" in capsys.readouterr().err
    assert main(["export", str(other_run.checkpoints / "step_9"), str(tmp_path / "model")]) == 2
    assert f"step_9: no such folder exists. {other_run.checkpoints} holds step_1: name" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_a_recipe_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "recipes/arithmetic/grop.yaml"]) == 2
    assert (
        "found no configuration file recipes/arithmetic/grop.yaml; did you mean recipes/arithmetic/grpo.yaml?"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("command", ["eval", "generate"])
def test_evaluating_a_run_that_does_not_exist_is_refused_and_those_there_are_are_named(
    command: str, arithmetic: Path, out: Path, other_run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, arithmetic, out, "trainer.experiment_name=defaut", command=command)
    assert f"{out}/defaut holds no checkpoint to evaluate. Name a run by" in message
    assert "trainer.resume=never evaluates model.path. Runs with checkpoints in the same folder: default" in message
    assert message.endswith("; did you mean default?")


def test_every_error_is_reported_in_one_message(
    arithmetic: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(
        capsys,
        arithmetic,
        out,
        "rollout.temprature=1",
        "rollout.n=0",
        "actor.epochs=many",
        "algorithm.adv_estimator=grop",
        "model.path=/no/such/model",
        "data.max_prompt_length=[",
    )
    first, *rest = message.splitlines()
    assert first == "6 problems:"
    for number, (line, part) in enumerate(
        zip(
            rest,
            [
                "cannot read the override data.max_prompt_length=[",
                "unknown key rollout.temprature; did you mean rollout.temperature?",
                "actor.epochs is 'many' (command line), but must be an integer",
                "rollout.n is 0 (command line), but must be a number above 0",
                "algorithm.adv_estimator=grop is unknown",
                "model.path is /no/such/model, but there is no such folder",
            ],
            strict=True,
        ),
        start=1,
    ):
        assert line.startswith(f"  {number}. ") and part in line


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_recipe_may_stand_anywhere(place: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text("rollout: {temperature: 0.9}\n")
    words = ["rollout.n=3", "model.path=Qwen/Qwen3-0.6B"]
    assert main(["config", *words[:place], str(tmp_path / "mine.yaml"), *words[place:], "trainer.val_only=true"]) == 2
    printed, refused = capsys.readouterr()
    assert " temperature: 0.9 " in printed and " n: 3 " in printed
    assert "trainer.val_only is set, but data.val_files is empty" in refused


def test_two_recipes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "recipes/arithmetic/grpo.yaml", "rollout.n=3", "rollout.n"]) == 2
    message = capsys.readouterr().err
    assert "recipes/arithmetic/grpo.yaml and rollout.n have no =, but a command takes one recipe" in message


@pytest.mark.parametrize("word", ["algorithm.adv_estimator=grop", "rollout.tensor_parallel_size=3"])
def test_config_prints_and_refuses_what_a_run_would_refuse(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "recipes/arithmetic/grpo.yaml", word]) == 2
    printed, refused = capsys.readouterr()
    assert "adv_estimator:" in printed and word.partition("=")[0] in refused


def test_config_only_notes_files_that_are_not_there_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    word = f"data.train_files=[{tmp_path}/later.parquet]"
    assert main(["config", "recipes/arithmetic/grpo.yaml", word]) == 0
    assert f"note: data.train_files holds {tmp_path}/later.parquet, which does not exist" in capsys.readouterr().err


def test_a_sampler_is_tried_before_anything_starts(
    arithmetic: Path, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("def order(prompts, seed, epoch):\n    return [len(prompts)] * len(prompts)\n")
    message = refusal(capsys, arithmetic, out, f"data.sampler={tmp_path}/mine.py:order")
    assert "at position 0 of epoch 0; expected row numbers, integers from 0 to" in message


def test_supervised_training_takes_no_sampler(arithmetic: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refusal(capsys, arithmetic, out, "data.sampler=curriculum", command="sft")
    assert "data.sampler is curriculum, but supervised training takes its rows in epochs" in message
