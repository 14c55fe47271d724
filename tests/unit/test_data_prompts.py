"""Rows, templates and prompts: the result for a dataset, and the message of each error."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerBase

from recipes.arithmetic.model import character_tokenizer
from verl_like.config.schema import DataConfig
from verl_like.data import templates
from verl_like.data.files import each_row, read_rows
from verl_like.data.prompts import PromptDataset, prompt_table
from verl_like.data.templates import Renderer, load_tokenizer
from verl_like.protocol import DataProto
from verl_like.training.sft_rows import sft_rows

QWEN3 = Path(__file__).parents[2].parent / "shared/data/tokenizers/qwen3"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if sign is defined %}{{ sign }}{% endif %}{% if add_generation_prompt %}={% endif %}"
)


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    """One token per character, no chat template, no special tokens added."""
    return character_tokenizer()


@pytest.fixture
def chat_tokenizer() -> PreTrainedTokenizerBase:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def jsonl(path: Path, rows: list[dict[str, Any]]) -> list[str]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [str(path)]


def plain(**options: Any) -> DataConfig:
    return DataConfig(apply_chat_template=False, **options)


def prompts(files: Sequence[str], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> PromptDataset:
    return PromptDataset(read_rows(files), data, tokenizer)


def answers(files: Sequence[str], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> DataProto:
    return sft_rows(read_rows(files), data, tokenizer)[0]


# --- files ---


def test_parquet_and_jsonl_give_the_same_prompts(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [
        {
            "prompt": "1+1=",
            "data_source": "s",
            "reward_model": {"ground_truth": "2", "style": "rule"},
            "extra_info": {"index": 7},
        },
        {
            "prompt": "2+2=",
            "data_source": "s",
            "reward_model": {"ground_truth": "4", "style": "rule"},
            "extra_info": {"index": 8},
        },
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    from_parquet = prompts([str(tmp_path / "x.parquet")], plain(), tokenizer)
    from_jsonl = prompts(jsonl(tmp_path / "x.jsonl", rows), plain(), tokenizer)
    for one, other in zip(from_parquet, from_jsonl, strict=True):
        assert one.prompt_ids.tolist() == other.prompt_ids.tolist() and one.prompt_ids.dtype == np.int32
        assert (one.text, one.data_source, one.ground_truth, one.extra_info) == (
            other.text,
            other.data_source,
            other.ground_truth,
            other.extra_info,
        )
    assert (
        from_parquet[0].ground_truth == "2"
        and from_parquet[0].extra_info == {"index": 7}
        and from_parquet[1].uid == "x.parquet:1"
    )


def test_uids_differ_between_files_of_one_name_and_do_not_depend_on_the_folder(tmp_path: Path) -> None:
    for folder in ("a", "b", "moved"):
        (tmp_path / folder).mkdir()
        jsonl(tmp_path / folder / "x.jsonl", [{"prompt": "1"}, {"prompt": "2"}])
    both = [row.uid for row in read_rows([str(tmp_path / "a/x.jsonl"), str(tmp_path / "b/x.jsonl")])]
    assert len(set(both)) == 4
    assert [r.uid for r in read_rows([str(tmp_path / "a/x.jsonl")])] == [
        r.uid for r in read_rows([str(tmp_path / "moved/x.jsonl")])
    ]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.parquet does not exist.*data\.train_files"):
        read_rows([str(tmp_path / "nowhere.parquet")])


def test_another_suffix_is_refused_with_those_that_work(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("prompt\n")
    with pytest.raises(ValueError, match=r"x\.csv ends in '\.csv'; expected one of \.parquet, \.jsonl"):
        read_rows([str(tmp_path / "x.csv")])


def test_no_files_name_the_option() -> None:
    with pytest.raises(ValueError, match=r"no data files.*data\.train_files"):
        read_rows([])


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_an_empty_dataset_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("jsonl"):
        path.write_text("\n\n")
    else:
        pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), path)
    with pytest.raises(ValueError, match=rf"dataset is empty.*{name}"):
        read_rows([str(path)])


def test_a_broken_line_is_located(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"prompt": "1"}\n{"prompt": \n')
    with pytest.raises(ValueError, match=r"line 2 of .*x\.jsonl is not JSON"):
        read_rows([str(tmp_path / "x.jsonl")])


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match=r"x\.parquet cannot be read as parquet"):
        read_rows([str(tmp_path / "x.parquet")])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "é"}'.encode("latin1"), r"is not UTF-8 text: its byte 12 is 0xe9 .*`iconv -f LATIN1 -t UTF-8`"),
        (b'{"prompt": "1", "id": ' + b"9" * 5000 + b"}", r"has an integer of more than 4300 digits.* as a string"),
        (b'{"prompt": ' + b"[" * 20000 + b"]" * 20000 + b"}", r"has lists .* nested too deep .* as strings"),
    ],
)
def test_a_line_that_python_cannot_read_is_located(tmp_path: Path, line: bytes, message: str) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"prompt": "1"}\r\n' + line + b"\n")
    with pytest.raises(ValueError, match=rf"^line 2 of .*x\.jsonl {message}"):
        read_rows([str(tmp_path / "x.jsonl")])


def test_a_damaged_page_of_a_parquet_file_is_reported_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"prompt": ["1+1="] * 1000}), path)
    content = bytearray(path.read_bytes())
    content[20:60] = bytes(byte ^ 0x5A for byte in content[20:60])
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.parquet cannot be read as parquet: .*Write it again"):
        read_rows([str(path)])


@pytest.mark.skipif(find_spec("pandas") is not None, reason="with pandas, pyarrow reads nanoseconds")
def test_a_value_that_pyarrow_cannot_convert_is_reported_with_its_row_and_column(tmp_path: Path) -> None:
    times = pa.array([1000, 2000, 1], pa.timestamp("ns"))
    pq.write_table(pa.table({"prompt": ["1", "2", "3"], "when": times}), tmp_path / "x.parquet")
    reported = (
        r"row 2 of .*x\.parquet has a value in the column 'when' \(of type timestamp\[ns\]\) .*in microseconds, or as"
    )
    for batch_size in (1, 8):
        with pytest.raises(ValueError, match=reported):
            list(each_row(str(tmp_path / "x.parquet"), batch_size=batch_size))


def test_half_a_character_is_reported_with_its_row(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    files = jsonl(tmp_path / "x.jsonl", [{"prompt": "1+1=", "answer": "2"}, {"prompt": "1+\ud800", "answer": "2"}])
    with pytest.raises(
        ValueError, match=r"row 1 of .*x\.jsonl has a prompt with '\\ud800' as its character 2, half of"
    ):
        prompts(files, plain(), tokenizer)
    files = jsonl(tmp_path / "x.jsonl", [{"prompt": "1+1=", "answer": "\ud800"}])
    with pytest.raises(ValueError, match=r"row 0 of .*x\.jsonl has an answer with '\\ud800'"):
        answers(files, plain(), tokenizer)


# --- columns ---


def test_a_missing_prompt_column_names_those_there_are(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    files = jsonl(tmp_path / "x.jsonl", [{"question": "1+1=", "answer": "2"}])
    with pytest.raises(ValueError, match=r"data\.prompt_key is 'prompt'.*row 0 of .*\['answer', 'question'\]"):
        prompts(files, plain(), tokenizer)


def test_a_missing_answer_column_names_those_there_are(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    files = jsonl(tmp_path / "x.jsonl", [{"prompt": "1+1=", "solution": "2"}])
    with pytest.raises(
        ValueError, match=r"data\.answer_key='answer'; it has \['prompt', 'solution'\].*data\.answer_key=''"
    ):
        prompts(files, plain(), tokenizer)
    assert prompts(files, plain(answer_key="solution"), tokenizer)[0].ground_truth == "2"
    assert prompts(files, plain(answer_key=""), tokenizer)[0].ground_truth is None


def test_rows_that_only_an_environment_scores_need_no_answer_and_keep_the_one_they_have(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    files = jsonl(tmp_path / "x.jsonl", [{"prompt": "1+1="}, {"prompt": "1+1=", "answer": "2"}])
    found = PromptDataset(read_rows(files), plain(), tokenizer, needs_ground_truth=False)
    assert [prompt.ground_truth for prompt in found] == [None, "2"]


def test_rows_without_data_source_take_the_configured_one(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    files = jsonl(
        tmp_path / "x.jsonl", [{"prompt": "1", "answer": "1"}, {"prompt": "2", "answer": "2", "data_source": "own"}]
    )
    dataset = prompts(files, plain(data_source="mine"), tokenizer)
    assert dataset.data_sources == ["mine", "own"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("image", {"bytes": b"png", "path": None}),
        ("audio", {"bytes": None, "path": "a.wav", "sampling_rate": 16000}),
        ("video", b"mp4"),
        ("image", [{"bytes": b"png", "path": None}]),
        ("images", ["a.png"]),
        ("figure", {"bytes": b"png", "path": None}),
        ("image", object()),  # such as a decoded picture
    ],
)
def test_rows_with_pictures_or_sounds_are_refused(column: str, value: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    rows = read_rows(["x"], lambda _: [{"prompt": "1+1=", "answer": "2", column: value}])
    with pytest.raises(
        ValueError, match=rf"row 0 of x has {column}, which belong to its prompt; expected text-only prompts"
    ):
        PromptDataset(rows, plain(), tokenizer)


def test_text_in_a_column_of_such_a_name_and_empty_pictures_pass(tokenizer: PreTrainedTokenizerBase) -> None:
    values = {"image": "a red ball", "audio": None, "video": ["one", "two"], "images": [], "file": {"path": "a.py"}}
    values |= {"figure": {"bytes": None, "path": None}, "videos": None}
    rows = read_rows(["x"], lambda _: [{"prompt": "1+1=", "answer": "2"} | values])
    assert PromptDataset(rows, plain(), tokenizer)[0].columns["image"] == "a red ball"


def test_features_make_a_column_where_any_prompt_has_some(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    files = jsonl(tmp_path / "x.jsonl", [{"prompt": "1+1=", "answer": "2"}])
    [prompt] = prompts(files, plain(), tokenizer)[:]
    assert "features" not in prompt_table([prompt]).columns
    table = prompt_table([prompt, replace(prompt, features={"picture": 1})])
    assert table["features"] == [{}, {"picture": 1}]


def test_the_prompt_table_has_one_row_per_prompt(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    files = jsonl(tmp_path / "x.jsonl", [{"prompt": "1+1=", "answer": "2"}, {"prompt": "10+1=", "answer": "11"}])
    dataset = prompts(files, plain(), tokenizer)
    table = prompt_table(dataset[:])
    assert table.ragged("prompt_ids").lengths.tolist() == [4, 5] and table.ragged("prompt_ids").dtype == np.int32
    assert table["uid"] == ["x.jsonl:0", "x.jsonl:1"] and table["prompt_text"] == ["1+1=", "10+1="]
    assert table["reward_inputs"][1] == {
        "data_source": "default",
        "ground_truth": "11",
        "extra_info": {},
        "messages": "10+1=",
        "columns": {"answer": "11"},
    }


# --- long prompts ---

LONG = [{"prompt": "1+1=", "answer": "2"}, {"prompt": "12+34=", "answer": "46"}]


def test_a_long_prompt_is_an_error_that_names_row_length_and_remedies(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises(
        ValueError,
        match=r"row 1 of .*x\.jsonl has a prompt of 6 tokens.*1 of 2 rows.*data\.max_prompt_length=6.*drop or truncate",
    ):
        prompts(jsonl(tmp_path / "x.jsonl", LONG), plain(max_prompt_length=5), tokenizer)


def test_drop_leaves_long_prompts_out_and_says_how_many(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        dataset = prompts(
            jsonl(tmp_path / "x.jsonl", LONG), plain(max_prompt_length=5, overlong_prompts="drop"), tokenizer
        )
    assert [prompt.text for prompt in dataset] == ["1+1="]
    assert "dropped 1 of 2 prompts" in caplog.text


def test_dropping_every_prompt_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=r"leaves no rows.*longest: 6"):
        prompts(jsonl(tmp_path / "x.jsonl", LONG), plain(max_prompt_length=2, overlong_prompts="drop"), tokenizer)


def test_truncate_keeps_the_end(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    dataset = prompts(
        jsonl(tmp_path / "x.jsonl", LONG), plain(max_prompt_length=5, overlong_prompts="truncate"), tokenizer
    )
    assert [tokenizer.decode(prompt.prompt_ids) for prompt in dataset] == ["1+1=", "2+34="]


# --- templates ---


def test_chats_and_strings_render_alike(tmp_path: Path, chat_tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [{"prompt": "1+1", "answer": "2"}, {"prompt": [{"role": "user", "content": "1+1"}], "answer": "2"}]
    assert [p.text for p in prompts(jsonl(tmp_path / "x.jsonl", rows), DataConfig(), chat_tokenizer)] == [
        "1+1=",
        "1+1=",
    ]


def test_a_tokenizer_without_chat_template_is_refused_with_the_remedies(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(
        ValueError, match=r"has no chat template.*data\.apply_chat_template=false.*model\.tokenizer_path"
    ):
        Renderer(DataConfig(), tokenizer)


def test_a_chat_without_chat_template_is_refused_with_its_row(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    files = jsonl(tmp_path / "x.jsonl", [{"prompt": [{"role": "user", "content": "1"}], "answer": "1"}])
    with pytest.raises(ValueError, match=r"row 0 of .*x\.jsonl: data\.apply_chat_template is false.*prompt is a list"):
        prompts(files, plain(), tokenizer)


@pytest.mark.parametrize(
    "prompt", [[], 3, [{"role": "user"}], [{"role": "user", "content": [{"type": "image"}]}], None]
)
def test_a_prompt_of_another_shape_is_refused(prompt: Any, chat_tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=r"role"):
        Renderer(DataConfig(), chat_tokenizer).text(prompt)


def test_template_variables_reach_the_template_and_misspelt_ones_are_refused(
    chat_tokenizer: PreTrainedTokenizerBase,
) -> None:
    assert Renderer(DataConfig(chat_template_kwargs={"sign": "-"}), chat_tokenizer).text("1") == "1-="
    with pytest.raises(
        ValueError, match=r"\['sing'\], which the tokenizer's chat template does not read; it reads \['sign'\]"
    ):
        Renderer(DataConfig(chat_template_kwargs={"sing": "-"}), chat_tokenizer)
    with pytest.raises(ValueError, match=r"apply_chat_template is false, so no template reads them"):
        Renderer(plain(chat_template_kwargs={"sign": "-"}), chat_tokenizer)


def test_a_refusing_chat_template_names_the_roles(chat_tokenizer: PreTrainedTokenizerBase) -> None:
    chat_tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ValueError, match=r"refused a prompt with roles \['user'\]: roles must alternate"):
        Renderer(DataConfig(), chat_tokenizer).text("1")


def test_format_prompt_wraps_the_last_user_message_only(chat_tokenizer: PreTrainedTokenizerBase) -> None:
    chat = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}]
    assert Renderer(DataConfig(format_prompt="({{ content }})"), chat_tokenizer).text(chat) == "12(3)="
    assert Renderer(plain(format_prompt="({{ content }})"), chat_tokenizer).text("3") == "(3)"


def test_format_prompt_reads_a_file(tmp_path: Path, chat_tokenizer: PreTrainedTokenizerBase) -> None:
    (tmp_path / "f.jinja").write_text("[{{ content }}]\n")
    assert Renderer(plain(format_prompt=str(tmp_path / "f.jinja")), chat_tokenizer).text("3") == "[3]"
    with pytest.raises(ValueError, match=r"names the file .*g\.jinja, which does not exist"):
        Renderer(plain(format_prompt=str(tmp_path / "g.jinja")), chat_tokenizer)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ content", r"is not a Jinja template: line 1"),
        ("{{ contents }}", r"reads the variables \['contents'\]; expected exactly \['content'\]"),
        ("no variable", r"reads the variables \[\]"),
    ],
)
def test_a_bad_format_prompt_is_refused(template: str, message: str, tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=message):
        Renderer(plain(format_prompt=template), tokenizer)


@pytest.mark.parametrize(
    "template",
    [
        "{{ content }}{{ cycler.__init__.__globals__.os.system('touch canary') }}",
        "{{ content }}{{ lipsum.__globals__['os'].popen('touch canary').read() }}",
        "{{ content.__class__.__mro__[1].__subclasses__() }}",
        "{{ content }}{{ range(10**9)|list }}",
    ],
)
def test_a_format_prompt_runs_no_code(
    template: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"data\.format_prompt cannot be filled"):
        Renderer(plain(format_prompt=template), tokenizer).text("1")
    assert list(tmp_path.iterdir()) == []


def test_no_template_is_compiled_outside_of_the_sandbox() -> None:
    package = Path(templates.__file__).parents[1]
    compiling = r"jinja2\.(Environment|Template)\(|NativeEnvironment|from jinja2 import"
    assert [path.name for path in package.rglob("*.py") if re.search(compiling, path.read_text())] == []


@pytest.mark.skipif(not QWEN3.is_dir(), reason="the Qwen3 tokenizer is not next to this checkout")
def test_qwen3_thinking_switch_changes_the_prompt(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(QWEN3))
    files = jsonl(tmp_path / "x.jsonl", [{"prompt": "Hi", "answer": ""}])
    thinking = prompts(files, DataConfig(), tokenizer)[0]
    silent = prompts(files, DataConfig(chat_template_kwargs={"enable_thinking": False}), tokenizer)[0]
    assert thinking.text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert silent.text == thinking.text + "<think>\n\n</think>\n\n"
    assert silent.prompt_ids.tolist() == tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, enable_thinking=False, return_dict=False
    )
    with pytest.raises(ValueError, match=r"does not read; it reads .*'enable_thinking'"):
        Renderer(DataConfig(chat_template_kwargs={"thinking": False}), tokenizer)


# --- tokenizer ---


@pytest.mark.parametrize("path", ["/no/such/model", "./no-such-model", "no/such/model"])
def test_a_missing_model_path_is_named(path: str) -> None:
    with pytest.raises(ValueError, match=rf"model path {path} does not exist.*model\.path"):
        load_tokenizer(path)


def test_an_empty_model_path_names_the_option() -> None:
    with pytest.raises(ValueError, match=r"model\.path is empty"):
        load_tokenizer("")


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no tokenizer could be loaded from the folder (?s:.*)model\.tokenizer_path"):
        load_tokenizer(str(tmp_path))


def test_a_saved_tokenizer_is_loaded(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.save_pretrained(tmp_path)
    assert load_tokenizer(str(tmp_path))("17+25=")["input_ids"] == tokenizer("17+25=")["input_ids"]


# --- supervised rows ---


def test_supervised_rows_end_with_the_end_token(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    table = answers(jsonl(tmp_path / "x.jsonl", LONG), plain(), tokenizer)
    assert [tokenizer.decode(ids) for ids in table.ragged("prompt_ids")] == ["1+1=", "12+34="]
    assert [tokenizer.decode(ids) for ids in table.ragged("response_ids")] == ["2<eos>", "46<eos>"]
    assert table.ragged("response_mask").values.all()
    assert table.ragged("response_mask").lengths.tolist() == [2, 3]


def test_a_long_answer_is_refused_or_dropped_never_cut(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    files = jsonl(tmp_path / "x.jsonl", LONG)
    with pytest.raises(ValueError, match=r"row 1 of .*answer of 3 tokens.*data\.max_response_length is 2"):
        answers(files, plain(max_response_length=2), tokenizer)
    kept = answers(files, plain(max_response_length=2, overlong_prompts="drop"), tokenizer)
    assert [tokenizer.decode(ids) for ids in kept.ragged("response_ids")] == ["2<eos>"]
    with pytest.raises(ValueError, match=r"every answer"):
        answers(files, plain(max_response_length=1, overlong_prompts="drop"), tokenizer)


def test_supervised_training_needs_an_end_token(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match=r"has no end token"):
        answers(jsonl(tmp_path / "x.jsonl", LONG), plain(), tokenizer)


def test_an_answer_that_is_no_text_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=r"row 0 of .* has the int '2' in 'answer'"):
        answers(jsonl(tmp_path / "x.jsonl", [{"prompt": "1+1=", "answer": 2}]), plain(), tokenizer)


def test_an_empty_prompt_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=r"row 0 of .* has an empty prompt"):
        prompts(jsonl(tmp_path / "x.jsonl", [{"prompt": "", "answer": "2"}]), plain(), tokenizer)


@pytest.mark.parametrize("data", [plain(), DataConfig()], ids=["plain", "chat"])
def test_a_prompt_that_is_null_must_be_filled_whatever_the_template(
    tmp_path: Path, chat_tokenizer: PreTrainedTokenizerBase, data: DataConfig
) -> None:
    files = jsonl(tmp_path / "a.jsonl", [{"prompt": "1+1", "answer": "2"}, {"prompt": None, "answer": "2"}])
    with pytest.raises(ValueError, match=r"^row 1 of .*a.jsonl has no prompt: 'prompt' is null there. Fill it, remove"):
        prompts(files, data, chat_tokenizer)


def test_an_answer_that_is_null_must_be_filled(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.eos_token = "="
    files = jsonl(tmp_path / "a.jsonl", [{"prompt": "1+1", "answer": None}])
    with pytest.raises(ValueError, match=r"^row 0 of .*a.jsonl has no answer: 'answer' is null there. Fill it, or rem"):
        answers(files, plain(), tokenizer)
