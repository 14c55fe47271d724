"""Models at URLs and on mirrors: fetched once, whole or not at all, and told where they cannot be."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from verl_like.checks.hub import check_hub_models
from verl_like.checks.models import models_are_there
from verl_like.config.problems import Refused
from verl_like.config.schema import Config, ModelConfig, RefConfig
from verl_like.data.templates import load_tokenizer
from verl_like.remote_models import copied_folder, here
from verl_like.workers.setup import WorkerSetup, with_models_here

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


def test_a_model_is_copied_once_without_what_nobody_reads(url: str, tmp_path: Path) -> None:
    folder = Path(here(url))
    assert folder == copied_folder(url) and folder.name.startswith("tiny-model-")
    assert (folder / "model.safetensors").read_bytes() == b"weights" and not (folder / "pytorch_model.bin").exists()
    (tmp_path / "bucket").rename(tmp_path / "gone")
    assert here(url) == here(f"{url}/") == str(folder)
    assert here("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B" and here("") == ""


def test_a_copy_that_is_cut_off_leaves_no_model(url: str) -> None:
    class CutOff(Exception):
        pass

    looks = iter(range(2))

    def look() -> None:
        if next(looks, None) is None:
            raise CutOff

    with pytest.raises(CutOff):
        here(url, look)
    assert not copied_folder(url).exists()
    assert (Path(here(url)) / "config.json").is_file()


def test_of_several_processes_one_copies_and_all_have_it(url: str) -> None:
    script = "import sys; from verl_like.remote_models import here; print(here(sys.argv[1]))"
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
    assert tokenizer.name_or_path == url, "scorers on other nodes have copies of their own"


def test_workers_have_folders_in_place_of_urls(url: str) -> None:
    config = Config(model=ModelConfig(path=url, tokenizer_path="someone/tokenizer"), ref=RefConfig(path=url))
    setup = WorkerSetup(config=config, rank=0, world_size=1, device="cpu", run_id="run", roles=frozenset({"actor"}))
    found = with_models_here(setup).config
    assert found.model.path == found.ref.path == str(copied_folder(url))
    assert (found.model.tokenizer_path, found.critic.path) == ("someone/tokenizer", "")
    assert config.model.path == url, "what the run records is what the user wrote"


def test_a_url_without_a_model_and_a_store_that_nobody_knows_are_told(url: str) -> None:
    config = Config(model=ModelConfig(path=f"{url}/nothing"))
    with pytest.raises(Refused, match=r"nothing, which cannot be copied here \(FileNotFoundError: .*no config.json\)"):
        check_hub_models(config)
    (problem,) = models_are_there(Config(model=ModelConfig(path="s4://bucket/model")))
    assert problem.startswith("model.path is s4://bucket/model, but fsspec knows no s4://")


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


def test_hub_names_are_asked_of_the_mirror_in_hf_endpoint(mirror: str, tmp_path: Path) -> None:
    script = (
        "from verl_like.checks.hub import check_hub_models\n"
        "from verl_like.config.schema import Config, DataConfig, ModelConfig\n"
        "data = DataConfig(train_files=['x.parquet'], max_prompt_length=32, max_response_length=64)\n"
        "check_hub_models(Config(data=data, model=ModelConfig(path='someone/model')))\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": mirror, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    found = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "model.path=someone/model reads at most 64" in found.stderr, found.stderr
