"""Models at URLs and on mirrors: fetched once, completely or not at all; failures are reported."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec.core
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from verl_like.checks.hub_models import check_hub_models
from verl_like.checks.models import models_exist
from verl_like.config.problems import Refused
from verl_like.config.schema import Config, ModelConfig, RefConfig
from verl_like.data.templates import load_tokenizer
from verl_like.remote import RemoteFolder
from verl_like.remote_models import copied_folder, local_path
from verl_like.workers.setup import WorkerSetup, with_local_models

CONFIG = {"model_type": "qwen3", "max_position_embeddings": 64, "num_attention_heads": 4, "head_dim": 32}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_LIKE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A model in a store."""
    folder = tmp_path / "bucket/tiny model"
    words = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="a").save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "pytorch_model.bin").write_bytes(b"the same in another format")
    return f"file://{folder}"


def test_a_model_is_copied_once_without_unused_files(url: str, tmp_path: Path) -> None:
    folder = Path(local_path(url))
    assert folder == copied_folder(url) and folder.name.startswith("tiny-model-")
    assert (folder / "model.safetensors").read_bytes() == b"weights" and not (folder / "pytorch_model.bin").exists()
    (tmp_path / "bucket").rename(tmp_path / "gone")
    assert local_path(url) == local_path(f"{url}/") == str(folder)
    assert local_path("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B" and local_path("") == ""


def test_a_copy_that_is_cut_off_leaves_no_model(url: str) -> None:
    class CutOff(Exception):
        pass

    looks = iter(range(2))

    def checked() -> None:
        if next(looks, None) is None:
            raise CutOff

    with pytest.raises(CutOff):
        local_path(url, checked)
    assert not copied_folder(url).exists()
    assert (Path(local_path(url)) / "config.json").is_file()


def _without_weights(url: str, tmp_path: Path) -> None:
    (tmp_path / "bucket/tiny model/model.safetensors").unlink()


def _with_an_index_alone(url: str, tmp_path: Path) -> None:
    _without_weights(url, tmp_path)
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (tmp_path / "bucket/tiny model/model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (tmp_path / "bucket/tiny model/model-00001-of-00002.safetensors").write_bytes(b"half")


def _with_a_broken_index(url: str, tmp_path: Path) -> None:
    _without_weights(url, tmp_path)
    (tmp_path / "bucket/tiny model/model.safetensors.index.json").write_text("[]")


@pytest.mark.parametrize(
    ("damaged", "reported"),
    [
        (_without_weights, "weights in safetensors files (model*.safetensors). Copy the model again; to convert"),
        (
            _with_an_index_alone,
            "1 of the 2 shards that its model.safetensors.index.json names (model-00002-of-00002.safetensors). Copy",
        ),
        (_with_a_broken_index, "a model.safetensors.index.json that names its shards (weight_map). Copy"),
    ],
)
def test_a_url_without_whole_weights_is_refused_as_a_folder_is_and_never_cached(
    url: str, tmp_path: Path, damaged: Callable[[str, Path], None], reported: str
) -> None:
    damaged(url, tmp_path)
    config = Config(model=ModelConfig(path=url))
    with pytest.raises(Refused) as caught:
        check_hub_models(config)
    (problem,) = caught.value.problems
    assert problem.startswith(f"model.path is {url}, a folder without {reported}")
    folder = url.removeprefix("file://")
    (of_folder,) = models_exist(Config(model=ModelConfig(path=folder)))
    assert of_folder == problem.replace(url, folder), "a folder is refused in the same words"
    assert not copied_folder(url).exists()
    (tmp_path / "bucket/tiny model/model.safetensors").write_bytes(b"weights")
    assert (Path(local_path(url)) / "model.safetensors").read_bytes() == b"weights", "what came later is seen"


def test_an_old_copy_without_its_weights_is_copied_again(url: str) -> None:
    copied_folder(url).mkdir(parents=True)
    (copied_folder(url) / "config.json").write_text("{}")
    assert (Path(local_path(url)) / "model.safetensors").read_bytes() == b"weights"


def test_whole_shards_are_a_model(url: str, tmp_path: Path) -> None:
    _with_an_index_alone(url, tmp_path)
    (tmp_path / "bucket/tiny model/model-00002-of-00002.safetensors").write_bytes(b"the other half")
    assert sorted(path.name for path in Path(local_path(url)).glob("*.safetensors")) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert (tmp_path / "bucket").rename(tmp_path / "gone") and local_path(url) == str(copied_folder(url))


def test_a_tokenizer_alone_at_a_url_is_copied_and_loaded(url: str, tmp_path: Path) -> None:
    (tmp_path / "bucket/words").mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bucket/words" / file).write_bytes((tmp_path / "bucket/tiny model" / file).read_bytes())
    words = f"file://{tmp_path}/bucket/words"
    config = Config(model=ModelConfig(path=url, tokenizer_path=words))
    config.data.train_files, config.data.max_prompt_length, config.data.max_response_length = ["x.parquet"], 32, 32
    assert list(models_exist(config)) == []
    check_hub_models(config)
    assert load_tokenizer(words).encode("b") == [1]
    assert local_path(words) == str(copied_folder(words)) != local_path(url)
    config.model.path = words
    with pytest.raises(Refused, match=r"model.path is file://.*words, which cannot be copied here .*no config.json"):
        check_hub_models(config)


def test_a_tokenizer_of_other_tokens_at_a_url_is_refused_as_in_a_folder(url: str, tmp_path: Path) -> None:
    words = Tokenizer(WordLevel({"b": 0, "a": 1}, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="a").save_pretrained(tmp_path / "bucket/words")
    config = Config(model=ModelConfig(path=url, tokenizer_path=f"file://{tmp_path}/bucket/words"))
    with pytest.raises(Refused, match=r"model.path is file://.*, to which 2 token ids of the tokenizer file://.*words"):
        check_hub_models(config)


def test_a_tokenizer_that_cannot_be_copied_is_reported_with_its_remedy(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(kind: str) -> None:
        raise ImportError(f"Install what reads {kind}")

    nothing = f"{url}/nothing"
    config = Config(model=ModelConfig(path=url, tokenizer_path=nothing))
    with pytest.raises(Refused, match=r"model.tokenizer_path is .*nothing, which cannot be copied here \(FileNotFound"):
        check_hub_models(config)
    with pytest.raises(ValueError, match=r"no tokenizer could be copied from .*nothing \(FileNotFoundError: .*Correct"):
        load_tokenizer(nothing)
    monkeypatch.setattr("fsspec.get_filesystem_class", not_installed)
    config.model.tokenizer_path = "s3://bucket/words"
    message = "s3://bucket/words, but the package that reads s3:// is not installed. Run `pip install s3fs`."
    assert f"model.tokenizer_path is {message}" in list(models_exist(config))
    with pytest.raises(ValueError, match="tokenizer's path is " + re.escape(message)):
        load_tokenizer("s3://bucket/words")


@pytest.mark.processes
def test_of_several_processes_one_copies_and_all_have_it(url: str) -> None:
    script = "import sys; from verl_like.remote_models import local_path; print(local_path(sys.argv[1]))"
    command = [sys.executable, "-c", script, url]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {process.communicate(timeout=60)[0].strip() for process in started} == {str(copied_folder(url))}
    assert sorted(path.name for path in copied_folder(url).parent.iterdir() if path.is_dir()) == [
        copied_folder(url).name
    ]


def test_the_driver_knows_a_model_at_a_url_as_it_knows_a_folder(url: str) -> None:
    config = Config(model=ModelConfig(path=url))
    config.data.train_files, config.data.max_prompt_length, config.data.max_response_length = ["x.parquet"], 32, 64
    with pytest.raises(Refused, match=r"are 96 tokens, but model.path=file://.* reads at most 64"):
        check_hub_models(config)
    tokenizer = load_tokenizer(url)
    assert tokenizer.encode("b") == [1]
    assert tokenizer.name_or_path == url, "scorers on other nodes have their own copies"


def test_workers_have_folders_instead_of_urls(url: str) -> None:
    config = Config(model=ModelConfig(path=url, tokenizer_path="someone/tokenizer"), ref=RefConfig(path=url))
    setup = WorkerSetup(config=config, rank=0, world_size=1, device="cpu", run_id="run", roles=frozenset({"actor"}))
    found = with_local_models(setup).config
    assert found.model.path == found.ref.path == str(copied_folder(url))
    assert (found.model.tokenizer_path, found.critic.path) == ("someone/tokenizer", "")
    assert config.model.path == url, "what the run records is what the user wrote"


def test_a_url_without_a_model_and_an_unknown_store_are_reported(url: str) -> None:
    config = Config(model=ModelConfig(path=f"{url}/nothing"))
    with pytest.raises(Refused, match=r"nothing, which cannot be copied here \(FileNotFoundError: .*no config.json\)"):
        check_hub_models(config)
    (problem,) = models_exist(Config(model=ModelConfig(path="s4://bucket/model")))
    assert problem.startswith("model.path is s4://bucket/model, but fsspec does not support s4://")


@pytest.fixture
def mirror() -> Iterator[str]:
    """A server that has one model, as the hub serves it."""
    content = json.dumps(CONFIG).encode()

    class Mirror(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            is_there = self.path.partition("?")[0] == "/someone/model/resolve/main/config.json"
            self.send_response(200 if is_there else 404)
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.processes
def test_hub_names_are_asked_of_the_mirror_in_hf_endpoint(mirror: str, tmp_path: Path) -> None:
    script = (
        "from verl_like.checks.hub_models import check_hub_models\n"
        "from verl_like.config.schema import Config, DataConfig, ModelConfig\n"
        "data = DataConfig(train_files=['x.parquet'], max_prompt_length=32, max_response_length=64)\n"
        "check_hub_models(Config(data=data, model=ModelConfig(path='someone/model')))\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": mirror, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    found = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "model.path=someone/model reads at most 64" in found.stderr, found.stderr


# --- keys of a store are any text ---


class Listing(MemoryFileSystem):
    """Lists keys as an object store may, in which ``..`` is a name like any other."""

    keys: tuple[str, ...] = ()

    def find(self, path: str, *args: Any, **kwargs: Any) -> dict[str, dict[str, Any]]:
        return {key: {"size": 7} for key in self.keys}

    def cat_file(self, path: str, *args: Any, **kwargs: Any) -> bytes:
        return json.dumps(CONFIG).encode()

    def get_file(self, rpath: str, lpath: str, **kwargs: Any) -> None:
        Path(lpath).write_bytes(b"foreign")


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> type[Listing]:
    monkeypatch.setattr(Listing, "keys", ())
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **options: (Listing(), "/bucket/run"))
    return Listing


OUTSIDE = (
    "/bucket/run/../../etc/evil.json",
    "/bucket/run/checkpoints/../../evil.json",
    "/bucket/run/..",
    "/bucket/run/a/./b.json",
    "/bucket/run/a\0.json",
    "/bucket/runaway/evil.json",
    "/etc/evil.json",
    "evil.json",
)


@pytest.mark.parametrize("key", OUTSIDE)
def test_a_listed_key_that_leads_out_of_the_folder_is_refused(key: str, listed: type[Listing]) -> None:
    listed.keys = ("/bucket/run/config.json", key)
    with pytest.raises(ValueError, match=r"lists the file .* which would be written outside of the folder"):
        RemoteFolder("s3://bucket/run").files()


def test_an_unusual_key_is_a_file(listed: type[Listing]) -> None:
    listed.keys = ("/bucket/run/a..b/...json", "/bucket/run/é ü", "/bucket/run/folder/")
    assert list(RemoteFolder("s3://bucket/run").files()) == ["a..b/...json", "é ü"]


def test_no_file_is_copied_by_a_name_that_leads_out(listed: type[Listing], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="outside of the folder"):
        RemoteFolder("s3://bucket/run").get({"../evil": tmp_path / "evil"}, lambda: None)
    assert list(tmp_path.iterdir()) == []


def test_a_model_whose_store_names_a_file_elsewhere_is_not_copied(listed: type[Listing], tmp_path: Path) -> None:
    listed.keys = tuple(f"/bucket/run/{name}" for name in ("config.json", "model.safetensors", "../../../evil.py"))
    with pytest.raises(ValueError, match="outside of the folder"):
        local_path("s3://bucket/run")
    assert not list(tmp_path.rglob("evil.py"))
