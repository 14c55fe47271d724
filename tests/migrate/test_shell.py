"""Launch scripts are read as bash reads them, with notes on values that only a running shell knows.

``shell_scripts/`` holds scripts that bash itself runs for comparison: launches of other projects in their usual forms,
and in ``shapes.txt`` one odd form after the other, ``%%`` between them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_like_migrate.shell import Script, read_script

SCRIPTS = Path(__file__).with_name("shell_scripts")
SHAPES = (SCRIPTS / "shapes.txt").read_text().split("%%\n")
LAUNCHES = sorted(path.name for path in SCRIPTS.glob("*.sh"))
ENVIRONMENT = {"HOME": "/home/me", "USER": "me", "PWD": "/work", "PATH": os.defpath, "LANG": "C.UTF-8"}
ARGUMENTS = ["one", "two words", "-x"]
# Stand-ins for programs record their words: each ends with NUL, and a line end marks the end of the command.
PROGRAMS = ("python3", "python", "ray", "deepspeed", "p")
STAND_INS = "".join(
    f'{name}() {{ printf \'%s\\0\' {name} "$@" >>"$RECORD"; printf \'\\n\\0\' >>"$RECORD"; }}\n' for name in PROGRAMS
)


def read(text: str, *arguments: str) -> Script:
    return read_script(text, arguments=arguments, environment=ENVIRONMENT)


def words(text: str, *arguments: str) -> list[list[str]]:
    """Return the words of each call of ``p``."""
    return [command[1:] for command in read(text, *arguments).commands if command[0] == "p"]


def notes(text: str, *arguments: str) -> list[str]:
    return read(text, *arguments).notes


def launched(script: Script) -> list[list[str]]:
    return [command for command in script.commands if command[0] in PROGRAMS]


def launched_by_bash(text: str, arguments: list[str], folder: Path) -> list[list[str]]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("compares with bash, which this machine does not have")
    record, stand_ins, script = folder / "record", folder / "stand_ins", folder / "script"
    record.touch()
    stand_ins.write_text(STAND_INS)
    script.write_text(text)
    subprocess.run(
        [bash, "--norc", script, *arguments],
        check=False,
        env={**ENVIRONMENT, "RECORD": str(record), "BASH_ENV": str(stand_ins)},
        cwd=folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=30,
    )
    commands: list[list[str]] = [[]]
    for word in record.read_text().split("\0")[:-1]:
        if word == "\n":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands[:-1]


@pytest.mark.processes
@pytest.mark.parametrize("text", SHAPES, ids=[f"{number}" for number in range(len(SHAPES))])
def test_bash_gives_the_same_words(text: str, tmp_path: Path) -> None:
    arguments = ARGUMENTS if "#ARGS" in text else []
    expected = launched_by_bash(text, arguments, tmp_path)
    try:
        assert launched(read(text, *arguments)) == expected
    except ValueError:
        assert expected == [] and is_refused_by_bash(text)


def is_refused_by_bash(text: str) -> bool:
    done = subprocess.run(["bash", "-n"], check=False, input=text, capture_output=True, text=True, timeout=30)
    return done.returncode != 0 or "unexpected" in done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [[], ["a.b=1", "c=['x', 'y']"], ["--seeds=7 8", "--model", "m", "--", "+d=2"]])
@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_is_read_as_bash_runs_it(name: str, arguments: list[str], tmp_path: Path) -> None:
    text = (SCRIPTS / name).read_text()
    expected = launched_by_bash(text, arguments, tmp_path)
    assert expected and launched(read(text, *arguments)) == expected


def test_the_launches_need_no_note_but_on_what_is_set_nowhere() -> None:
    for name in LAUNCHES:
        assert [note for note in notes((SCRIPTS / name).read_text()) if "is not set" not in note] == []


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12), max_size=5))
def test_quoted_words_come_back_whatever_is_in_them(expected: list[str]) -> None:
    # A Windows line end is read as a line end.
    expected = [word.replace("\r\n", "\n") for word in expected]
    script = read(f"p {shlex.join(expected)}\n")
    assert script.commands == [["p", *expected]] and script.notes == []


@given(st.lists(st.sampled_from(["<<", "[[", "]]", "if", "fi", "{ ", "case a in", *"'\"\\$(){}`[|&;\n #a=!"])))
def test_any_text_is_read_or_refused_with_a_line(signs: list[str]) -> None:
    refusal = ""
    try:
        read("".join(signs))
    except ValueError as error:
        refusal = str(error)
    assert refusal == "" or refusal.startswith("line ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p a 'b  c' \"d $USER\" e\\ f $'g\\th' # i", ["a", "b  c", "d me", "e f", "g\th"]),
        ("X='a  b'; p $X \"$X\" x$X", ["a", "b", "a  b", "xa", "b"]),
        ("p ${U:-x} ${U:+y} ${USER:+z} ${#USER} ${HOME##*/} ${HOME/me/you} ${USER^^} ${HOME:1:4}",
         ["x", "z", "2", "me", "/hoyou/me", "ME", "home"]),
        ('A=(a "b c"); A+=(d); p "${A[@]}" ${#A[@]} ${A[1]}', ["a", "b c", "d", "3", "b", "c"]),
        ("n=7; p $((n / 2)) $((-n / 2)) $((n % -4)) $((n ** 2)) $((n > 3 ? 1 : 0))", ["3", "-3", "3", "49", "1"]),
        ("p {a,b}{1..2} ~/x a={x:1} '{a,b}'", ["a1", "a2", "b1", "b2", "/home/me/x", "a={x:1}", "{a,b}"]),
        ("p +a.b=1 'a=[1,2]' a.b=\"['x','y']\" ~key a={x:1} a.x=\\\"q\\\" 'a=${b.c}' \\${b.c}",
         ["+a.b=1", "a=[1,2]", "a.b=['x','y']", "~key", "a={x:1}", 'a.x="q"', "a=${b.c}", "${b.c}"]),
        ("X=1 p $X", []),
        ("p a > log 2>&1 b | tee log", ["a", "b"]),
    ],
)  # fmt: skip
def test_the_words_of_a_command(text: str, expected: list[str]) -> None:
    assert words(text) == [expected]


def test_commands_are_in_sequence_with_builtins_and_commands_of_functions() -> None:
    script = read("set -x\nexport A=1 B\nf() { cd /x; p $1; }\nB=2 f q && echo; (p; C=3) | cat\n")
    assert script.commands == [
        ["set", "-x"], ["export", "A=1", "B"], ["cd", "/x"], ["p", "q"], ["echo"], ["p"], ["cat"]
    ]  # fmt: skip
    assert script.variables["A"] == "1" and script.variables["PWD"] == "/x" and script.variables["HOME"] == "/home/me"
    assert "B" not in script.variables and "C" not in script.variables and script.notes == []


def test_arrays_are_none_of_the_variables() -> None:
    assert set(read("A=(a b); C=1").variables) - set(ENVIRONMENT) == {"C", "OPTIND"}


@pytest.mark.parametrize(
    ("text", "expected", "note"),
    [
        ("p a_$(date +%s)_b", "a_$(date +%s)_b", "line 1: $(date +%s) is not executed; its source text is kept"),
        ('p "$(dirname "$0")/x y"', '$(dirname "$0")/x y', 'line 1: $(dirname "$0") is not executed'),
        ("p `date`", "`date`", "line 1: `date` is not executed"),
        ("p $(cd $(hostname) && pwd)", "$(cd $(hostname) && pwd)", "line 1: $(cd $(hostname) && pwd) is not executed"),
        ("p $(basename ${NOPE})", "$(basename {NOPE})", "line 1: $(basename ${NOPE}) is not executed"),
        ("p $([ -f a ] && echo b)", "$([ -f a ] && echo b)", "line 1: $([ -f a ] && echo b) is not executed"),
        ("p $(echo a | tr a b)", "$(echo a | tr a b)", "line 1: $(echo a | tr a b) is not executed"),
        ("X=$(ls a | wc -l)\np n=$X", "n=$(ls a | wc -l)", "line 1: $(ls a | wc -l) is not executed"),
        ("X=$(date)\np ${X##*/}", "$(date)", "line 1: $(date) is not executed"),
        ("X=$(a)\np $((X * 2))", "$((X * 2))", "line 2: $((X * 2)) cannot be computed (the value of X is unknown)"),
        ("\np x${NOPE}", "x", "line 2: NOPE is not set; an empty value is assumed"),
        ("p $0", "$0", "line 1: $0 is only known when the script runs"),
        ("p $((1 / 0))", "$((1 / 0))", "line 1: $((1 / 0)) cannot be computed (a division by zero)"),
        ("p $((1.5 * 2))", "$((1.5 * 2))", "1.5 * 2 is not an integer expression"),
        ("p data/*.json", "data/*.json", "line 1: the files that match data/*.json are unknown"),
        ("p ${HOME@Q}", "{HOME@Q}", "line 1: ${HOME@Q} is unknown (@Q is not supported)"),
        ("p x${MODEL:?give one}", "x", "line 1: MODEL is not set, so bash would stop here"),
        ("read X\np $X", "$X", "line 1: the value that read assigns to X is unknown"),
    ],
)
def test_what_only_a_running_shell_knows_stays_as_it_is_written(text: str, expected: str, note: str) -> None:
    script = read(text)
    assert script.commands[-1] == ["p", expected]
    assert any(found.startswith(note) or note in found for found in script.notes), script.notes


def test_what_stands_around_an_unknown_text_falls_apart_at_its_spaces() -> None:
    assert words('X="a=$(date +%s)_b c=1"\np $X "$X"') == [["a=$(date +%s)_b", "c=1", "a=$(date +%s)_b c=1"]]


def test_a_script_knows_where_it_is() -> None:
    text = 'HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\np $0 $HERE/x "$(realpath "$HERE/..")" `basename $0 .sh`'
    script = read_script(text, environment=ENVIRONMENT, path="/a/b/run.sh")
    assert script.commands[-1] == ["p", "/a/b/run.sh", "/a/b/x", "/a", "run"] and script.notes == []


def test_a_subshell_forgets_what_it_sets_but_its_notes_are_kept() -> None:
    script = read("(X=1; p $U)\np x$X")
    assert script.commands == [["p"], ["p", "x"]]
    assert [note.partition(" is")[0] for note in script.notes] == ["line 1: U", "line 2: X"]


def test_an_unset_value_is_reported_once() -> None:
    assert notes("p $U $U\np $U") == ["line 1: U is not set; an empty value is assumed"]


@pytest.mark.parametrize(
    ("text", "expected", "note"),
    [
        ("if [ -f a ]; then p 1; else p 2; fi", [["2"]], "line 1: it is unknown whether [ -f a ] holds"),
        ("if [ -d a ]; then p 1; fi; p 2", [["2"]], "line 1: it is unknown whether [ -d a ] holds"),
        ("if nvidia-smi; then p 1; elif true; then p 2; fi", [["2"]], "line 1: it is unknown whether nvidia-smi holds"),
        ("[ -f a ] && p 1; p 2", [["2"]], "line 1: it is unknown whether p 1 is reached; it is left out"),
        ("[ -f a ] && p 1 || p 2", [["2"]], "line 1: it is unknown whether p 1 is reached"),
        ("[ -f a ] || p 1; p 2", [["2"]], "line 1: it is unknown whether p 1 is reached"),
        ("X=$(hostname)\n[ $X = a ] && p 1; p 2", [["2"]], "line 2: it is unknown whether p 1 is reached"),
        ("case $(uname) in a) p 1;; *) p 2;; esac", [["2"]], "the value of $(uname) is unknown; the case * is assumed"),
        (
            "while nc -z x; do p 1; done; p 2",
            [["2"]],
            "line 1: the number of iterations of this loop is unknown; it is left out",
        ),
        ("while true; do sleep 1; p 1; done; p 2", [["2"]], "line 1: the number of iterations of this loop is unknown"),
        ("if x; then p 1; else exit 1; fi; p 2", [["2"]], "line 1: exit is ignored"),
        (
            "case a in @(a|b)) p 1;; *) p 2;; esac",
            [["2"]],
            "the pattern @(a|b) has alternatives, which are not supported",
        ),
        ("p 1\n[ $# -lt 1 ] && exit 2\np 2", [["1"]], "line 2: the script ends here, with exit 2"),
        ("[ a = ] && p 1; p 2", [["2"]], "line 1: found"),
    ],
)
def test_what_is_not_decided_takes_the_else_branch_or_is_left_out(
    text: str, expected: list[list[str]], note: str
) -> None:
    assert words(text) == expected
    assert any(note in found for found in notes(text)), notes(text)


def test_a_command_is_taken_to_succeed() -> None:
    assert words("mkdir x && p 1; cd y || exit 1; p 2; [ $? -eq 0 ] && p 3") == [["1"], ["2"], ["3"]]


def test_files_and_scripts_within_the_script_are_noted() -> None:
    script = read("source env.sh\nbash -c 'p 1'\neval p '\"a b\"'\neval $(conda hook)")
    assert script.commands == [
        ["source", "env.sh"], ["bash", "-c", "p 1"], ["p", "1"], ["p", "a b"], ["eval", "$(conda hook)"]
    ]  # fmt: skip
    assert [note.partition(":")[0] for note in script.notes] == ["line 1", "line 2", "line 3", "line 4", "line 4"]


@pytest.mark.parametrize(
    "line",
    [
        'bash -c "p $x; exit 3"',
        'srun -N 2 bash -lc "p $x"',
        "bash -l -c 'p 1'",
        'docker exec box /bin/sh -c "cd /work && p $x"',
    ],
)
def test_what_another_shell_is_given_is_read(line: str) -> None:
    assert words(f"x=1\n{line}\np 2") == [["1"], ["2"]]


@pytest.mark.parametrize("below", ["\\\n  # b=2 \\\n  c=3", "\\ \n  c=3"])
def test_a_command_that_ends_before_its_author_thinks_is_noted(below: str) -> None:
    script = read(f"p a=1 {below}\np d")
    assert [command[:2] for command in script.commands] == [["p", "a=1"], ["p", "d"]]
    assert len(script.notes) == 1 and "the lines below it are not part of the command" in script.notes[0]


@pytest.mark.parametrize("end", ["\n\nq", "", "\n# more\n\nq"])
def test_a_comment_after_the_last_line_of_a_command_needs_no_note(end: str) -> None:
    assert notes(f"p a=1 \\\n  # b=2{end}") == []


def test_a_comment_between_the_items_of_an_array_ends_nothing() -> None:
    assert read("A=(a \\\n # b\n c)\np ${A[@]}").commands == [["p", "a", "c"]]
    assert notes("A=(a \\\n # b\n c)") == []


def test_lines_that_end_as_on_windows_are_read_with_a_note() -> None:
    assert words("p a \\\r\n b\r\n") == [["a", "b"]] and "Windows" in notes("p a\r\n")[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p a\np 'b", "line 2: found a ' that is open to the end of the script, expected a ' that closes it. Add it"),
        ('p "b', 'line 1: found a " that is open'),
        ("p $(a", "line 1: found a ( that is open to the end of the script, expected a )"),
        ("p ${a", "line 1: found a { that is open to the end of the script, expected a }"),
        (
            "p\nif true; then\np",
            "line 3: found the end of the script, expected elif or else or fi for the if of line 2",
        ),
        ("for x in a; p; done", "line 1: found p, expected do for the for of line 1"),
        ("while true; do p", "line 1: found the end of the script, expected done for the while of line 1"),
        ("case a in a) p", "expected ;; or ;& or ;;& or esac for the case of line 1"),
        ("f() {\np", "line 2: found the end of the script, expected } for the { of line 1"),
        ("A=(a\nb", "line 2: found the end of the script, expected the ) of the array that begins on line 1"),
        ("p\nfi", "line 2: found fi, expected a command. Check the script with `bash -n`."),
        ("p && ", "line 1: found the end of the script, expected a command"),
        ("p )", "line 1: found ), expected ; or the end of the line"),
        ("[[ a == ]]", "line 1: found == in a condition, expected its end"),
        ("for ((i=0; i<3)); do p; done", "line 1: found 2 parts in for ((...)), expected 3"),
        ("f() { f; }\nf", "found f calling itself without end"),
        ("for i in {1..999}; do for j in {1..999}; do :; done; done", "found more than 100000 commands"),
        ("(" * 5000, "found commands nested deeper than can be read"),
        ("X=aaaa; for i in {1..40}; do X=$X$X; done", "found more than 1,000,000 characters in X"),
        ("p a\n" * 100_000, "found a script of 400,000 characters"),
    ],
)
def test_what_bash_could_not_read_is_refused_with_the_line(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(text)
    assert message in str(caught.value)


def test_reading_starts_no_process_and_touches_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "posix_spawn", pytest.fail)
    monkeypatch.setattr(subprocess, "Popen", pytest.fail)
    assert words("touch a; echo b > c; $(touch d); . ./e; [ -f f ] || mkdir g; p <(cat h)") == [["<(cat h)"]]
    assert list(tmp_path.iterdir()) == []
