"""Secrets stay out of what is printed, written and sent, whether their name, their form or the environment gives them
away; what is no secret stays as it is.
"""

from __future__ import annotations

import logging
import os
import stat
import time
import types
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from verl_like.config.compose import as_yaml, compose, compose_run
from verl_like.config.render import render, render_changed
from verl_like.config.run_file import recorded_text
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.token import close_token
from verl_like.masking import MASK, MaskingFormatter, is_secret_name, masked, masked_text, masking
from verl_like.runs.crash import crash_report
from verl_like.runs.folder import RunFolder
from verl_like.telemetry.process_log import RunLogs
from verl_like.telemetry.services import SERVICES
from verl_like_migrate.migration import migrate

KEY = "sk-proj-a1b2c3d4e5f6g7h8i9j0"


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "Authorization",
        "X-Api-Key",
        "OPENAI_API_KEY",
        "HF_TOKEN",
        "wandb_key",
        "AWS_SECRET_ACCESS_KEY",
        "password",
        "db_password",
        "token",
        "access_token",
        "refreshToken",
        "apiKey",
        "Cookie",
        "client_secret",
        "account_key",
        "auth_token",
        "X-Key",
        "SECRETS",
    ],
)
def test_a_name_gives_a_secret_away(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "prompt_key",
        "max_tokens",
        "eos_token",
        "pad_token_id",
        "stop_token_ids",
        "tokenizer",
        "tokens",
        "author",
        "api_key_env",
        "num_tokens",
        "token_level_loss",
        "key_file",
        "add_special_tokens",
        "monkey",
        "keyboard",
        "tokens_per_pass",
        "signature_file",
        "data_keys",
    ],
)
def test_a_name_of_something_else_gives_nothing_away(name: str) -> None:
    assert not is_secret_name(name)


def test_none_of_our_options_is_treated_as_a_secret() -> None:
    assert masked(asdict(Config())) == asdict(Config())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://u:pw@host/x", f"http://u:{MASK}@host/x"),
        ("s3://user:p%40ss@bucket/x", f"s3://user:{MASK}@bucket/x"),
        ("postgres://me:secret@db:5432/x", f"postgres://me:{MASK}@db:5432/x"),
        ("https://abcdefgh12345@github.com/x", f"https://{MASK}@github.com/x"),
        ("https://h/x?api_key=abc&y=1", f"https://h/x?api_key={MASK}&y=1"),
        ("https://h/x?X-Amz-Signature=deadbeef&z", f"https://h/x?X-Amz-Signature={MASK}&z"),
        ("https://h/x?sv=1&sig=abc%3D", f"https://h/x?sv=1&sig={MASK}"),
        ("Authorization: Bearer abcdefghijkl", f"Authorization: Bearer {MASK}"),
        ("{'authorization': 'Basic dXNlcjpwYXNz'}", f"{{'authorization': 'Basic {MASK}'}}"),
        ("Bearer abc123def456 was refused", f"Bearer {MASK} was refused"),
        (f"Incorrect API key: {KEY}.", f"Incorrect API key: {MASK}."),
        ("hf_" + "aB3" * 10, MASK),
        ("ghp_" + "aB3" * 10, MASK),
        ("AKIAABCDEFGHIJKLMNOP", MASK),
        ("eyJhbGciOiJI.eyJzdWIiOiI.abc", MASK),
        ("api_key='abcdefgh123' x", f"api_key='{MASK}' x"),
        ("password=hunter2hunter2", f"password={MASK}"),
        ("-----BEGIN RSA PRIVATE KEY-----\nab\ncd\n-----END RSA PRIVATE KEY-----\nend", f"{MASK}\nend"),
    ],
)
def test_a_form_gives_a_secret_away(text: str, shown: str) -> None:
    assert masked_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "see http://a:8000/v1, ok",
        "{'Authorization': 'Bearer $KEY'}",
        "max_tokens=1000000 and token=5",
        "data.prompt_key=abcdefghij",
        "basic training, Basic authentication",
        "/tmp/sk-learn/abc task-sk-instruct_model_7b_v1_long_name",
        "git@github.com:x/y",
        "hf:openai/gsm8k:train and hf_transfer",
        "https://h/x?tokens=5&page=2",
        "password='$DB_PASSWORD'",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked_text(text) == text


def test_a_tree_is_masked_by_names_and_by_forms() -> None:
    tree = {
        "headers": {"Authorization": "Bearer xyz", "X-Api-Key": "$NAME", "Accept": "json"},
        "api_key_env": "OPENAI_API_KEY",
        "services": [{"password": 12345, "url": "http://a:b@c"}],
        "token": "",
        "other": KEY,
    }
    assert masked(tree) == {
        "headers": {"Authorization": MASK, "X-Api-Key": "$NAME", "Accept": "json"},
        "api_key_env": "OPENAI_API_KEY",
        "services": [{"password": MASK, "url": f"http://a:{MASK}@c"}],
        "token": "",
        "other": MASK,
    }


def test_a_value_of_the_environment_is_masked_wherever_it_occurs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "open sesame")
    monkeypatch.setenv("SHORT_TOKEN", "the")
    assert masked_text("it said <open sesame> to the door") == f"it said <{MASK}> to the door"


def test_a_log_masks_messages_and_tracebacks() -> None:
    try:
        raise RuntimeError(f"no {KEY}")
    except RuntimeError as error:
        record = logging.LogRecord(
            "x", logging.INFO, "", 0, "at %s", ("http://u:pw@h",), (RuntimeError, error, error.__traceback__)
        )
    text = MaskingFormatter("%(message)s").format(record)
    assert text.startswith(f"at http://u:{MASK}@h\n")
    assert f"RuntimeError: no {MASK}" in text and KEY not in text


# --- a run's folder ---

LITERAL = {"headers": {"Authorization": f"Bearer {KEY}"}, "url": "http://u:pw-of-mine@h/score"}


def run_of(folder: Path, **kwargs: Any) -> tuple[Config, RunFolder]:
    config = compose(None, []).config
    config.trainer.output_dir, config.trainer.experiment_name = str(folder), "run"
    config.reward.function, config.reward.function_kwargs = "remote_http", {**LITERAL, **kwargs}
    run = RunFolder(config)
    run.claim(as_yaml(config), job="train")
    return config, run


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_record_of_a_run_masks_secrets_and_evaluations_have_them(tmp_path: Path) -> None:
    config, run = run_of(tmp_path)
    recorded = run.config.read_text()
    assert KEY not in recorded and "pw-of-mine" not in recorded
    assert yaml.safe_load(recorded)["reward"]["function_kwargs"]["headers"] == {"Authorization": MASK}
    assert recorded.startswith("# verl-like train\n")
    assert compose_run(run.path, []).config == config
    assert mode(run.config) == mode(run.path / ".secrets.yaml") == 0o600


def test_a_run_without_secrets_has_no_file_of_them(tmp_path: Path) -> None:
    _, run = run_of(tmp_path)
    run.claim(as_yaml(Config()), job="train")
    assert not (run.path / ".secrets.yaml").exists()
    assert run.config.read_text() == recorded_text("train", as_yaml(Config()))


def test_a_record_whose_secrets_are_elsewhere_asks_for_them(tmp_path: Path) -> None:
    _, run = run_of(tmp_path)
    (run.path / ".secrets.yaml").unlink()
    with pytest.raises(ValueError, match=r"reward\.function_kwargs holds \*\*\* instead of a secret"):
        compose_run(run.path, [])
    given = ["reward.function_kwargs.headers.Authorization=$KEY", "reward.function_kwargs.url=http://h/score"]
    assert compose_run(run.path, given).config.reward.function_kwargs["url"] == "http://h/score"


def test_a_run_continues_with_another_key_but_not_with_another_function(tmp_path: Path) -> None:
    config, run = run_of(tmp_path)
    run.metrics.write_text('{"step": 1}\n')
    config.reward.function_kwargs = {**LITERAL, "headers": {"Authorization": "Bearer another-key-0001"}}
    run.refuse_other(as_yaml(config), job="train", resume="auto")
    config.reward.function_kwargs = {**LITERAL, "protocol": "openrlhf"}
    with pytest.raises(ValueError, match="is the folder of another run") as refused:
        run.refuse_other(as_yaml(config), job="train", resume="auto")
    assert KEY not in str(refused.value)


def test_what_is_printed_of_a_configuration_masks_secrets(tmp_path: Path) -> None:
    composed = compose(None, [f"reward.function_kwargs.api_key={KEY}", "trainer.remote_dir=s3://u:pw-of-mine@b"])
    for text in (render_changed(composed), render(composed)):
        assert KEY not in text and "pw-of-mine" not in text and f"s3://u:{MASK}@b" in text


class Service(types.ModuleType):
    """Takes what any tracker's ``init`` is given."""

    Settings = staticmethod(lambda **kwargs: None)
    Table = None

    def __init__(self) -> None:
        super().__init__("service")
        self.taken: list[Any] = []
        self.info, self.run_id, self.name = self, "1", "1"

    def init(self, **kwargs: Any) -> Service:
        self.taken.append(kwargs["config"])
        return self

    def log_dict(self, config: Any, name: str) -> None:
        self.taken.append(config)

    def start_run(self, **kwargs: Any) -> Service:
        return self

    def set_experiment(self, name: str) -> None:
        pass

    def define_metric(self, *args: Any, **kwargs: Any) -> None:
        pass


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_tracking_service_gets_no_secret(name: str, tmp_path: Path) -> None:
    config, run = run_of(tmp_path)
    service = Service()
    SERVICES[name](service, config, run.path)
    [taken] = service.taken
    assert taken["reward"]["function"] == "remote_http"
    assert KEY not in str(taken) and "pw-of-mine" not in str(taken)


def test_the_report_of_a_crash_masks_secrets_and_is_for_its_owner(tmp_path: Path) -> None:
    line = crash_report(RuntimeError(f"refused {KEY}"), tmp_path)
    [file] = (tmp_path / "crashes").iterdir()
    assert KEY not in line + file.read_text()
    assert MASK in line and MASK in file.read_text()
    assert mode(file) == 0o600


def test_the_log_of_a_run_masks_secrets_and_is_for_its_owner(tmp_path: Path) -> None:
    with current(RunLogs).kept(tmp_path):
        logging.getLogger("verl_like.test").warning("refused %s", KEY)
    assert f"refused {MASK}" in (tmp_path / "1" / "driver.log").read_text()
    assert mode(tmp_path / "1" / "driver.log") == 0o600


def test_a_recipe_of_a_script_repeats_no_secret_in_its_comments_or_table(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"python3 -m verl.trainer.main_ppo fork.api_key=hunter2-hunter2 fork.url=http://u:pw@h x.y={KEY}")
    found = migrate("verl", script, [], environment={})
    text = found.recipe() + found.table()
    assert f"fork.api_key={MASK}" in text
    assert "hunter2" not in text and ":pw@" not in text and KEY not in text


def test_a_new_file_for_its_owner_is_so_whatever_the_mask_of_the_user(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        _, run = run_of(tmp_path)
    finally:
        os.umask(before)
    assert mode(run.config) == 0o600


def test_the_token_of_ray_is_for_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / ".ray/auth_token"))
    close_token()  # before Ray has made one
    assert mode(tmp_path / ".ray") == 0o700
    (tmp_path / ".ray/auth_token").write_text("a" * 64)
    (tmp_path / ".ray/auth_token").chmod(0o644)
    close_token()
    assert mode(tmp_path / ".ray/auth_token") == 0o600


@pytest.mark.parametrize(
    "word", ["x", "a-", "a_", "?key", "eyJ-", "http://a:", "sk-", "&token", "password", "a+.", "api_key=", "Bearer "]
)
def test_the_time_of_masking_is_linear_in_the_length(word: str) -> None:
    def seconds(length: int) -> float:
        text, begun = f"://{word * (length // len(word))}", time.process_time()
        masked_text(text)
        return time.process_time() - begun

    short = min(seconds(4_000) for _ in range(3))
    assert seconds(64_000) < 100 * short + 0.01, "16 times as long; a quadratic time would be 256 times as long"


def test_masking_takes_the_environment_as_it_is_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    before = masking()
    monkeypatch.setenv("MY_API_KEY", "tangerine-42")
    assert before("a tangerine-42 b") == "a tangerine-42 b"
    assert masking()("a tangerine-42 b") == masked_text("a tangerine-42 b") == f"a {MASK} b"
