"""Scripts that would run forever: each is quickly read or refused, in little memory, and nothing in it is executed."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
import yaml

from verl_like.config.reading_limits import bounded
from verl_like.config.render import laid_out
from verl_like_migrate import migration
from verl_like_migrate.migration import Migration, migrate
from verl_like_migrate.shell import budget

RUN = "python3 -m verl.trainer.main_ppo data.train_batch_size=8"
DIGITS = "9" * 6000
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
TOO_MANY = "commands and calculations"
TOO_LONG = "characters built by the script"
TOO_DEEP = "nested deeper than can be read"


def read(text: str, folder: Path, name: str = "run.sh") -> Migration:
    (folder / name).write_text(text)
    return migrate("verl", folder / name, [], environment={})


@pytest.fixture
def a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a tenth of the budget, so that the tests are fast."""
    monkeypatch.setattr(budget, "MOST_STEPS", budget.MOST_STEPS // 10)
    monkeypatch.setattr(budget, "MOST_CHARACTERS", budget.MOST_CHARACTERS // 10)


def chain(form: str, first: str = "") -> str:
    """Repeat ``form`` forty times, with consecutive numbers for ``{a}`` and ``{b}``."""
    return first + "".join(form.format(a=number, b=number + 1) for number in range(40))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a=(x); for i in {1..60}; do a=("${a[@]}" "${a[@]}"); done', TOO_LONG),
        ('a=(x); for i in {1..60}; do a+=("${a[@]}"); done', TOO_LONG),
        ('read -a a <<< "' + "x " * 50_000 + '"; for i in {1..900}; do b=("${a[@]}"); done', TOO_LONG),
        (f"X={'a' * 100_000}; Y={'b' * 90_000}; Z=${{X//a/$Y}}", TOO_LONG),
        (f"X={'a' * 20_000}; Y=${{X#*b}}", TOO_LONG),
        (f"for i in {{1..1000}}; do cd ../{'d/' * 5000}; done", TOO_LONG),
        (chain('a{a}="a{b}+a{b}"\n') + "echo $((a0))", TOO_MANY),
        (chain('a{a}="(a{b}*a{b})"\n') + "((b = a0))", TOO_MANY),
        (chain("f{b}() {{ f{a}; f{a}; }}\n", "f0() { :; }\n") + "f40", TOO_MANY),
        ("while true; do while true; do while true; do :; done; done; done", TOO_MANY),
        ("for i in {1..1000}; do (for j in {1..1000}; do (:); done); done", TOO_MANY),
        ("echo " + "$(echo " * 400 + "x" + ")" * 400, TOO_DEEP),
        ("echo " + "${a:-" * 400 + "x" + "}" * 400, TOO_DEEP),
        ("echo " + "{a,b}" * 3000, TOO_DEEP),
        ("[[ " + "! " * 3000 + "-n x ]]", TOO_DEEP),
        ('x="eval \\"\\$x\\""; eval "$x"', TOO_DEEP),
        (":(){ :|:& };:", "found : calling itself without end"),
        (f"{RUN} '+a={'[' * 2000}{']' * 2000}'", TOO_DEEP),
        (f"{RUN} '+a={'{a:' * 400}1{'}' * 400}'", TOO_DEEP),
        (f"{RUN} '+{'.'.join('a' * 3000)}=1'", TOO_DEEP),
        (f"{RUN} +a0=x " + chain("'+a{b}=${{a{a}}}${{a{a}}}' "), "a13 refers to values that refer to others"),
        (f"{RUN} '+a=${{b}}${{b}}' '+b=${{a}}${{a}}'", "Recursive interpolation"),
    ],
)
@pytest.mark.usefixtures("a_tenth")
def test_a_script_without_an_end_is_refused(text: str, message: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(ValueError) as refused:
        read(f"{text}\n{RUN}", tmp_path)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 600
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(
    "text",
    [
        f"X={'a' * 3000}; [[ $X == {'*a' * 40}b ]]",
        f"X={'a' * 3000}; Y=${{X#{'*a' * 40}b}}; Z=${{X%%{'*a' * 30}b}}; W=${{X//{'*a' * 20}b/c}}",
        f"echo {'{a,b}' * 60} {'{a,' * 300}b{'}' * 300} {{1..10000}}{'x' * 50_000} {{0{'0' * 50_000}1..9999}}",
        f"echo {{0..{DIGITS}}} {{1..9223372036854775808..9223372036854775807}}",
        f"X={DIGITS}; echo $((X)) $((-X)) $((0x{'f' * 6000})) ${{{DIGITS}}} $((9**63**63)) $((2**-1))",
        f"shift {DIGITS}; f() {{ return {DIGITS}; }}; f; X=$(seq {DIGITS})",
        "shift ²; declare -A k; k[²]=1; echo ${k[²]} ${x:²} $(seq ² ³); for i in ${a[²]}; do break ²; done",
        f"a=(1 2); echo ${{a[-{DIGITS}]}} ${{a[{DIGITS}]}} ${{a[@]:0:{DIGITS}}}; a[-9223372036854775808]=3; a+=(5)",
        "a='a+a'; echo $((a)); b='b,b'; ((b))",
        f"echo $(({'1+' * 20_000}1)) $(({'- ' * 20_000}1)) $(({'1?' * 5000}1{':1' * 5000}))",
        "X=$'\\ud800\\u0000\\000'; export X",
        f"{RUN} data.max_prompt_length={DIGITS}",
        f"{RUN} data.max_response_length=nan trainer.nnodes=inf trainer.n_gpus_per_node=0 data.max_prompt_length=1e999",
        f"{RUN} data=5 data.x.y.z=1 data.x=3 trainer=null '~trainer' =4 '..a=1' 'a..b=1' '[0]=1' 'a[0]=1' 'a.0.b=1'",
        f"{RUN} '+a=&x [1, *x]' '+b={{[}}' --config-path=/dev --config-name=zero",
    ],
)
def test_an_odd_script_is_read(text: str, tmp_path: Path) -> None:
    started = time.monotonic()
    found = read(f"{text}\n{RUN}", tmp_path)
    yaml.safe_load(found.recipe())
    found.table().encode()
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "its aliases expand to more than 100,000 values"),
        ("a: &a [*a]", "its aliases expand to more than 100,000 values"),
        ("a: " + "[" * 2000 + "]" * 2000, TOO_DEEP),
        ("a: " + "x" * 2_000_001, "no configuration has more than 2,000,000"),
        (f"a: {DIGITS}", "cannot be read as YAML"),
        ("a: !!set {b}", "cannot be read as YAML"),
        ("a: '${'", "cannot be read as YAML"),
        ("5", "cannot be read as YAML"),
        ("a: !!python/object/apply:os.system ['true']", "cannot be read as YAML"),
        ("a0: x\n" + chain("a{b}: ${{a{a}}}${{a{a}}}\n"), "refers to values that refer to others"),
    ],
)
def test_a_configuration_without_an_end_is_refused(text: str, message: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(ValueError) as refused:
        read(text, tmp_path, "run.yaml")
    assert message in str(refused.value)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "text",
    [
        f"X={'a' * 40}b; [[ $X =~ ^(a+)+$ ]]",
        f"X={'a' * 5000}; [[ $X =~ ^(a|aa)+b$ ]]",
        f"{RUN} +s.a0={'x' * 1000} " + chain("'+s.a{b}=${{.a{a}}}${{.a{a}}}' "),
    ],
)
def test_what_no_budget_counts_ends_by_the_clock(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "bounded", partial(bounded, longest_s=0.3))
    with pytest.raises(ValueError, match=r"takes more than 0\.3 s to read"):
        read(f"{text}\n{RUN}", tmp_path)


def test_one_budget_is_for_all_readings_of_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MOST_STEPS", 10_000)
    loop = 'for i in {1..60}; do for j in {1..100}; do :; done; done\n[ "$NODE_RANK" = 0 ] || exit 1\n'
    with pytest.raises(ValueError, match=TOO_MANY):  # 6,000 commands, twice
        read(f'{loop}if [ "$NODE_RANK" = 0 ]; then {RUN}; fi', tmp_path)


@pytest.mark.parametrize("text", [b"\xff\xfe\x00", bytes(range(256))])
def test_a_script_that_is_no_text_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_bytes(text)
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        migrate("verl", tmp_path / "run.sh", [], environment={})


def test_a_message_does_not_repeat_all_of_a_long_word(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as refused:
        read(RUN + " " + "\\" * 100_002, tmp_path)
    assert "cannot read" in str(refused.value)
    assert len(str(refused.value)) < 600


EVIL = "\nmodel:\n  trust_remote_code: true\nreward:\n  function: evil.py:f\n#"


@pytest.mark.parametrize(
    "word", ["fork.key='\"a{}\"'", "actor_rollout_ref.rollout.engine_kwargs.vllm.a{}=5", "$(p {})"]
)
def test_nothing_in_a_script_becomes_another_line_of_the_recipe(word: str, tmp_path: Path) -> None:
    recipe = read(f"{RUN} $'" + word.replace("'", "\\'").format(EVIL.replace("\n", "\\n")) + "'", tmp_path).recipe()
    tree = yaml.safe_load(recipe)
    assert "trust_remote_code" not in tree.get("model", {})
    assert "function" not in tree.get("reward", {})
    assert not any(line.strip() == "trust_remote_code: true" for line in recipe.splitlines())


def test_a_value_of_several_lines_stands_on_one_and_comes_back() -> None:
    values = {"a\nmodel: 1": "b\nc: d\n# e", "no": "  \n f", "g\u2028": ["h\ni", {"j\nk": 1}], "l": "'\"\n\t\x07"}
    text = laid_out((f"section.{name}", value, "from\nmodel: evil") for name, value in values.items())
    assert len(text.splitlines()) == 1 + len(values)
    assert yaml.safe_load(text) == {"section": values}
