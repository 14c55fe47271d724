"""Rewards for programs: right programs pass, and programs that cheat do not."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest

from tests.graders._programs import ADD, ASSERTS, RIGHT_ADD, RIGHT_SUM, SUMS, passes, result, why
from verl_like_graders import code
from verl_like_graders.code import last_program
from verl_like_graders.programs.code_tests import AssertTests, read_tests
from verl_like_graders.programs.outcomes import same_text, same_value
from verl_like_graders.programs.values import BadMessage, decode, encode

# --- which code is run ---


def test_the_last_closed_block_of_python_is_the_program() -> None:
    text = "```python\na = 1\n```\nbetter:\n```py\na = 2\n\nb = 3\n```\n```\nnot python\n```\n```cpp\nint a;\n```\n```python\na = 4"  # noqa: E501
    assert last_program(text) == "a = 2\n\nb = 3"


def test_a_block_may_be_indented_with_its_code() -> None:
    assert last_program("1. so\n   ```Python3\n   if a:\n       b\n   ```\n") == "if a:\n    b"


def test_a_block_that_was_never_closed_gives_way_to_the_next() -> None:
    assert last_program("```python\nbroken\n```python\nwhole\n```\n") == "whole"


def test_without_a_closed_block_of_python_there_is_nothing_to_run() -> None:
    for response in (
        "",
        "print(3)",
        "```\nprint(3)\n```",
        "```python\nprint(3)",
        "``` js\nx\n```",
        "say ```python x``` inline",
    ):
        assert last_program(response) is None
        found = code.compute_score("code", response, SUMS, {})
        assert (found["score"], found["acc"], found["pred"], found["num_tests"]) == (0.0, 0.0, "", 2.0)


@pytest.mark.processes
def test_equal_code_votes_together() -> None:
    assert result("x = 1\n", SUMS)["pred"] == result("\nx = 1", ADD)["pred"] != result("x = 2", SUMS)["pred"]


# --- the tests in a ground truth ---


@pytest.mark.processes
@pytest.mark.parametrize(
    "truth",
    [
        SUMS,
        SUMS | {"fn_name": None, "asserts": None},  # Parquet
        {"inputs": [["1 2"], ["3 4", ""]], "outputs": [["3"], "7"]},  # APPS
    ],
)
def test_texts_are_for_standard_input_and_output(truth: dict[str, Any]) -> None:
    for form in (truth, json.dumps(truth)):
        assert passes(RIGHT_SUM, form) and not passes("print(3)", form)


@pytest.mark.processes
@pytest.mark.parametrize(
    "truth",
    [
        ADD,
        ADD | {"outputs": [[3], [7]]},  # APPS
        {"fn_name": "add", "inputs": ["1\n2", "3\n4\n"], "outputs": ["3", "7"]},  # LiveCodeBench
    ],
)
def test_with_a_name_they_are_arguments_and_results(truth: dict[str, Any]) -> None:
    for form in (truth, json.dumps(truth)):
        assert passes(RIGHT_ADD, form) and not passes("def add(a, b):\n    return 3", form)


HUMAN_EVAL = """
METADATA = {'author': 'x'}

def check(candidate):
    assert candidate(1, 2) == 3
    for i in range(3):
        assert candidate(i, i) == 2 * i, "doubled"
    assert True, "a test that all pass"
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "truth",
    [
        ASSERTS,
        json.dumps(ASSERTS),
        "\n".join(ASSERTS),
        {"asserts": ASSERTS},
        {"asserts": ["assert add(ONE, 2) == three()", ASSERTS[1]], "setup": "ONE = 1\ndef three():\n    return 3"},
        {"asserts": ["import math", *ASSERTS]},
        {"asserts": HUMAN_EVAL, "entry_point": "add"},
        HUMAN_EVAL + "check(add)",
        f"from solution import add\n{ASSERTS[0]}\nif True:\n    {ASSERTS[1]}",
    ],
)
def test_asserts_come_as_a_list_a_text_or_a_check_of_a_candidate(truth: Any) -> None:
    found = result(RIGHT_ADD, truth)
    assert (found["score"], found["num_passed"], found["num_tests"], found["why"]) == (1.0, 2.0, 2.0, "")
    found = result("def add(a, b):\n    return 3", truth, partial=True)
    assert (found["score"], found["acc"], found["num_passed"]) == (0.5, 0.0, 1.0)


@pytest.mark.processes
def test_a_check_that_returns_stays_one_test() -> None:
    tests = read_tests("def check(f):\n    if f(0, 0):\n        return\n    assert f(1, 2) == 3\ncheck(add)")
    assert isinstance(tests, AssertTests) and len(tests) == 1
    assert passes(RIGHT_ADD, "def check(f):\n    if f(0, 0):\n        return\n    assert f(1, 2) == 3\ncheck(add)")


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (None, r"ground_truth is None; expected tests: .*inputs.*fn_name.*asserts"),
        ("", "contains no assert"),
        ("def f(:", "is not valid Python"),
        ('{"inputs": ["1"], "outputs": [', "is not valid Python"),
        ("7", r"ground_truth is 7; expected tests"),
        ({"inputs": ["1"]}, r"has the keys \['inputs'\]; expected tests"),
        ({"inputs": ["1"], "outputs": ["1", "2"]}, "1 inputs and 2 outputs; expected the same number"),
        ({"inputs": [], "outputs": []}, "0 inputs and 0 outputs; expected .* at least one"),
        ({"inputs": "1", "outputs": "1"}, r"has inputs '1'; expected a list"),
        ({"inputs": [1], "outputs": ["1"]}, r"has 1 among its inputs; expected text"),
        ({"fn_name": "f", "inputs": ["not json"], "outputs": ["1"]}, r"input 'not json' .*one argument per line"),
        ({"fn_name": "f", "inputs": [{"a": 1}], "outputs": [1]}, r"expected the list of arguments of f"),
        ({"asserts": []}, "contains no assert"),
        ({"asserts": 3}, r"has asserts 3; expected a list of texts or one text"),
        (["print(f(1))"], "contains no assert"),
        ("def check(candidate):\n    assert candidate(1)", r"check\(candidate\) must be called"),
    ],
)
def test_a_ground_truth_that_is_no_tests_is_refused(truth: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        result(RIGHT_ADD, truth)


@pytest.mark.processes
def test_tests_that_cannot_be_run_are_no_fault_of_the_response() -> None:
    with pytest.raises(ValueError, match=r"tests of this row cannot be run: .*No module named 'no_such_module'"):
        result(RIGHT_ADD, "import no_such_module\nassert add(1, 2) == 3")
    with pytest.raises(ValueError, match=r"tests of this row cannot be run: the tests pass a function"):
        result("def apply(f):\n    return f(3)", "assert apply(lambda x: x + 1) == 4")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"timeout_s": 0}, "timeout_s is 0; expected more than 0"),
        ({"tolerance": -1.0}, r"tolerance is -1\.0; expected 0 or more"),
        ({"tolerance": math.inf}, r"tolerance is inf; expected 0 or more"),
    ],
)
def test_options_that_are_none_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        result(RIGHT_SUM, SUMS, **kwargs)


# --- equality ---


def test_line_ends_and_white_space_at_the_end_do_not_count_in_printed_text() -> None:
    assert same_text("1 2 \r\n3\t\n\n", "1 2\n3")
    assert same_text("", "\n")
    for other in ("1  2\n3", " 1 2\n3", "\n1 2\n3", "1 2\n\n3", "1 2 3", "1 2\n3.0", "1 2\n3\n4"):
        assert not same_text(other, "1 2\n3"), other


def test_with_a_tolerance_words_that_are_numbers_may_differ_by_it() -> None:
    assert same_text("x 0.3333 1e3", "x 0.333333 1000.0", 1e-3)
    assert not same_text("0.33", "0.333333", 1e-3) and not same_text("0.3333", "0.333333")
    assert same_text("100000", "100010", 1e-3) and not same_text("y 1", "x 1", 1e-3) and not same_text("1 1", "1", 1e-3)
    assert same_value([1.0001, {"a": 2}], [1.0, {"a": 2.0}], 1e-3) and not same_value([1.0001], [1.0])
    assert not same_value(10**400, 1.0, 1e-3) and not same_value([1.0], [1.0, 1.0], 1e-3)


def test_a_tolerance_makes_no_number_infinite() -> None:
    for expected in ("inf", "-inf", "1e999", "nan"):
        assert not same_text("5", expected, 0.1) and not same_value(5, float(expected), 0.1)
        assert not same_value(10**400, float(expected), 0.1)
    assert same_text("inf", "1e999", 0.1) and same_value(math.inf, math.inf, 0.1)
    assert not same_text("-inf", "inf", 0.1) and not same_text("inf", "5", 0.1)


@pytest.mark.processes
def test_tuples_and_keys_that_are_numbers_are_what_json_makes_of_them() -> None:
    truth = {"fn_name": "f", "inputs": [[0]], "outputs": [[[1, [2, [3]]], {"1": "a"}]]}
    assert passes("def f(x): return (1, [2, (3,)]), {1: 'a'}", truth)
    assert not passes("def f(x): return {1, 2}", truth | {"outputs": [[1, 2]]})


def test_values_of_every_built_in_type_travel_unchanged() -> None:
    values = [
        None,
        True,
        1,
        -(2**70),
        10**5000,
        1.5,
        float("inf"),
        "a\ud800",
        [1, [2]],
        (1, (2,)),
        {1, 2},
        frozenset({3}),
        b"\x00\xff",
        {(1, 2): {"a": [3]}},
        1 + 2j,
    ]

    def none(value: Any) -> Any:
        raise AssertionError(value)

    travelled = [decode(json.loads(json.dumps(encode(value, none))), none) for value in values]
    assert travelled == values and list(map(type, travelled)) == list(map(type, values))


@pytest.mark.parametrize(
    "message", [{"set": [[1]]}, {"int": "x"}, {"eval": "1"}, {}, {"a": 1, "b": 2}, {"dict": [1]}, {"bytes": 3}]
)
def test_what_no_value_encodes_to_is_unreadable(message: Any) -> None:
    with pytest.raises(BadMessage):
        decode(message, lambda _: None)


# --- honest programs ---


@pytest.mark.processes
@pytest.mark.parametrize(
    "program",
    [
        "import sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())))",
        "import sys\nsys.stdout.write(str(sum(map(int, sys.stdin.buffer.read().split()))))",
        "import os\nprint(sum(map(int, os.read(0, os.fstat(0).st_size).split())))",
        "print(sum(map(int, open(0).read().split())))",
        "print(sum(map(int, open('/dev/stdin').read().split())))",
        "if __name__ == '__main__':\n    print(sum(map(int, input().split())))\n    exit()",
        f"import threading\ndef main():\n    "
        f"{RIGHT_SUM}\nthreading.stack_size(2**26)\nthreading.Thread(target=main).start()",
        "import atexit, os\natexit.register(lambda: os.write(1, str(sum(map(int, input().split()))).encode()))",
        "out = open(1, 'w')\nout.write(str(sum(map(int, input().split()))))",
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_STACK, (2**27, "
        "2**27))\nsys.setrecursionlimit(10**6)\n" + RIGHT_SUM,
        "open('notes', 'w').write(input())\nprint(sum(map(int, open('notes').read().split())))\nimport "
        "os\nos.remove('notes')",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    a: int\nprint(P(sum(map(int, "
        "input().split()))).a)",
    ],
)
def test_programs_may_read_print_and_end_in_any_usual_way(program: str) -> None:
    assert result(program, SUMS)["why"] == ""


@pytest.mark.processes
def test_a_function_has_the_usual_imports_at_hand_and_may_be_a_method_of_solution() -> None:
    program = """
    class Solution:
        def add(self, a: Optional[int], b: int) -> int:
            return reduce(lambda x, y: x + y, deque([a, b])) + pow(2, 3, 8) + math.floor(0.5)
    """
    assert result(program, ADD)["why"] == ""


@pytest.mark.processes
def test_a_function_of_the_tests_finds_only_names_that_the_solution_defines_or_imports() -> None:
    assert passes("from math import gcd", ["assert gcd(4, 6) == 2"])
    assert "name 'gcd' is not defined" in why("x = 1", ["assert gcd(4, 6) == 2"])


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f(x):\n    return {'a': (1, {2}), 3: b'x'}", "assert f(0) == {'a': (1, {2}), 3: b'x'}"),
        (
            "def f(n):\n    yield from range(n)",
            "assert list(f(3)) == [0, 1, 2] and next(f(1)) == 0\nassert sorted(f(2)) == [0, 1]",
        ),
        ("def f(xs):\n    xs.sort()", "xs = [3, 1]\nassert f(xs) is None\nassert xs == [1, 3]"),
        ("def f(x):\n    raise KeyError(x)", "try:\n    f(1)\n    assert False\nexcept KeyError:\n    pass"),
        (
            "class Odd(ValueError): pass\ndef f(x):\n    raise Odd",
            "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass",
        ),
        (
            "def f(x):\n    return x / 3",
            "import math\nassert math.isclose(f(1), 0.3333333333333333)\nassert abs(f(2) - 0.6667) < 1e-3",
        ),
        (
            "class Stack:\n    def __init__(self): self.xs = []\n    def push(self, x): self.xs.append(x)\n"
            "    def __len__(self): return len(self.xs)",
            "s = Stack()\ns.push(3)\nassert len(s) == 1 and s.xs == [3] and isinstance(s, Stack) and not Stack()",
        ),
        (
            "class V:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == o.x\n"
            "    def __add__(self, o): return V(self.x + o.x)",
            "assert V(1) + V(2) == V(3)\nassert V(1) != V(2)",
        ),
        (
            "class Node:\n    def __init__(self, v): self.v, self.next = v, None\ndef f(n):\n    return n.v + "
            "(f(n.next) if n.next else 0)",
            "head = Node(1)\nhead.next = Node(2)\nassert f(head) == 3",
        ),
        ("def f(n):\n    return 10 ** n", "assert f(6000) == 10 ** 6000"),
        ("def sum(a, b):\n    return a * b", "assert sum(10, 15) == 150"),
    ],
)
def test_asserts_may_use_results_in_any_usual_way(program: str, tests: str) -> None:
    assert result(program, tests)["why"] == ""


# --- programs that fail ---


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print(3)", r"test 2: expected '7\n', found '3\n'"),
        ("print(3", "test 1: exited with code 1: SyntaxError: '(' was never closed"),
        ("1 / 0", "test 1: exited with code 1: ZeroDivisionError: division by zero"),
        (RIGHT_SUM + "\nexit(3)", "test 1: exited with code 3"),
        ("input(); input()", "test 1: exited with code 1: EOFError"),
        ("x = bytearray(8 << 30)", "test 1: exited with code 1: MemoryError"),
        ("while True: print('x' * 1000)", "test 1: printed more than 1,048,576 bytes"),
        ("import ctypes\nctypes.string_at(0)", "test 1: killed by SIGSEGV"),
        ("\ud800", "test 1: exited with code 1: UnicodeEncodeError"),
    ],
)
def test_the_reason_why_a_program_fails_is_reported(program: str, reason: str) -> None:
    assert why(program, SUMS).startswith(reason.replace(r"\n", "\\n"))


@pytest.mark.processes
@pytest.mark.parametrize("truth", [ADD, ASSERTS])
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def sub(a, b): pass", "'add'"),
        ("def add(a): pass", "TypeError"),
        ("raise ValueError('x')", "ValueError: x"),
        ("def add(", "SyntaxError"),
        ("exit()", "SystemExit"),
    ],
)
def test_a_function_that_is_not_there_or_does_not_fit_passes_nothing(truth: Any, program: str, reason: str) -> None:
    found = result(program, truth, partial=True)
    assert found["num_passed"] == 0.0 and reason in found["why"]


@pytest.mark.processes
@pytest.mark.alone
@pytest.mark.parametrize(
    ("truth", "program"),
    [
        (SUMS, "s = input()\nwhile s[0] == '1': pass\nprint(7)"),
        (ADD, "def add(a, b):\n    while a == 1: pass\n    return a + b"),
        (ASSERTS, "def add(a, b):\n    while a == 1: pass\n    return a + b"),
        (ADD, "def add(a, b):\n    if a == 1:\n        import os\n        os._exit(0)\n    return a + b"),
        (ASSERTS, "def add(a, b):\n    if a == 1:\n        import os\n        os._exit(0)\n    return a + b"),
    ],
)
def test_a_test_that_hangs_or_ends_the_program_costs_that_test_only(truth: Any, program: str) -> None:
    found = result(program, truth, partial=True, timeout_s=0.3)
    assert (found["score"], found["num_passed"]) == (0.5, 1.0)
    assert found["why"].startswith(("test 1: still running after 0.3 s", "test 1: the solution ended its process"))


@pytest.mark.processes
@pytest.mark.alone
@pytest.mark.parametrize(
    "truth",
    [
        {"inputs": ["1"] * 50, "outputs": ["1"] * 50},
        {"fn_name": "f", "inputs": [[1]] * 50, "outputs": [1] * 50},
        ["assert f(1) == 1"] * 50,
    ],
)
def test_all_tests_together_are_bounded(truth: Any) -> None:
    started = time.monotonic()
    program = "def f(x):\n    while True: pass\nif __name__ == '__main__': f(1)"
    found = result(program, truth, partial=True, timeout_s=0.3, total_timeout_s=0.5)
    assert time.monotonic() - started < 0.5 + 1.0
    assert (found["num_passed"], found["num_tests"]) == (0.0, 50.0)


@pytest.mark.processes
def test_without_partial_the_first_failure_ends_the_testing() -> None:
    truth = {"inputs": ["", "", ""], "outputs": ["0", "1", "0"]}
    found = result("print(0)", truth)
    assert (found["score"], found["acc"], found["num_passed"], found["num_tests"]) == (0.0, 0.0, 1.0, 3.0)
    found = result("print(0)", truth, partial=True)
    assert (found["score"], found["acc"], found["num_passed"]) == (pytest.approx(2 / 3), 0.0, 2.0)


# --- programs that cheat: each would pass a harness that trusts the solution's interpreter, its output or its exit code
# ---

ALWAYS_EQUAL = """
class Any:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __gt__ = __le__ = __ge__ = __lt__
    def __sub__(self, other): return self
    def __abs__(self): return self
    def __bool__(self): return True
class Number(int):
    __eq__ = Any.__eq__
    __hash__ = int.__hash__
class Text(str):
    __eq__ = Any.__eq__
class Items(list):
    __eq__ = Any.__eq__
"""
CHEATS = {
    "exits early": "import os\nos._exit(0)",
    "exits early within": "def add(a, b):\n    import sys\n    sys.exit(0)",
    "exits at once within": "def add(a, b):\n    import os\n    os._exit(0)",
    "prints that it passed": "print('passed', 'ok', '{\"passed\": true}', 'All tests passed')\ndef add(a, b): "
    "print('passed')",
    "object that equals all": ALWAYS_EQUAL + "def add(a, b): return Any()",
    "number that equals all": ALWAYS_EQUAL + "def add(a, b): return Number(5)",
    "text that equals all": ALWAYS_EQUAL + "def add(a, b): return Text('x')",
    "list that equals all": ALWAYS_EQUAL + "def add(a, b): return Items()",
    "class that equals all": ALWAYS_EQUAL + "class Meta(type):\n    __eq__ = Any.__eq__\n"
    "class add(metaclass=Meta):\n    def __init__(self, a, b): pass",
    "patches what tests use": """
import builtins, json, math, operator
for name in ('abs', 'all', 'bool', 'isinstance', 'len', 'set', 'sorted', 'str'):
    setattr(builtins, name, lambda *a, **k: True)
operator.eq = math.isclose = lambda *a, **k: True
json.loads = lambda *a: 3
def add(a, b): return None
""",
    "defines what tests use": "def abs(x): return 0\ndef isclose(*a): return True\ndef len(x): return 0\ndef add(a, "
    "b): return -1",
    "patches assertion errors": "import builtins\nbuiltins.AssertionError = type('E', (BaseException,), {})\ndel "
    "builtins.AssertionError\n"
    "def add(a, b): return 0",
    "raises to be caught": "def add(a, b): raise AssertionError",
    "raises what nobody catches": "def add(a, b): raise KeyboardInterrupt",
    "writes into its callers": """
import sys
frame = sys._getframe()
while frame:
    frame.f_globals.update(passed=True, why='')
    frame = frame.f_back
def add(a, b): return 0
""",
    "writes to every descriptor": """
import json, os, struct
def say(*messages):
    for message in messages:
        body = json.dumps(message).encode()
        for fd in range(3, 64):
            try:
                os.write(fd, struct.pack('!I', len(body)) + body)
            except OSError:
                pass
say({'passed': True, 'why': ''}, {'passed': True, 'why': ''}, {'code': 0})
def add(a, b):
    say({'passed': True, 'why': ''}, {'done': True}, {'value': True, 'changed': {}}, {'value': None, 'changed': {'0': 1}})
    os._exit(0)
""",  # noqa: E501
    "replaces the module of its runner": "import sys\nfor name, module in list(sys.modules.items()):\n    if "
    "'verl_like' in name:\n"
    "        for key in list(vars(module)):\n            if callable(vars(module)[key]):\n"
    "                setattr(module, key, lambda *a, **k: '')\ndef add(a, b): return 0",
    "looks for the tests in memory": """
import gc, re, sys
def add(a, b):
    for thing in gc.get_objects():
        text = thing if isinstance(thing, str) else repr(thing) if isinstance(thing, (list, tuple)) and len(thing) < 100 else ''
        found = re.search(r'add\\(%d, %d\\) == (\\d+)' % (a, b), text)
        if found:
            return int(found[1])
    for frame in sys._current_frames().values():
        while frame:
            for value in frame.f_locals.values():
                if isinstance(value, dict) and 'outputs' in value:
                    return value['outputs'][0]
            frame = frame.f_back
    return 'not found'
""",  # noqa: E501
}


@pytest.mark.processes
@pytest.mark.parametrize(
    "truth",
    [
        SUMS,
        ADD,
        ASSERTS,
        "import math\nassert abs(add(1, 2) - 3) < 1e-6\nassert math.isclose(add(3, 4), 7)",
        "def check(candidate):\n    assert candidate(1, 2) in (3, 4)\n    assert not candidate(3, 4) != 7\ncheck(add)",
    ],
    ids=["prints", "calls", "asserts", "isclose", "check"],
)
def test_cheating_passes_no_test(truth: Any) -> None:
    num_passed = {
        name: result(program, truth, partial=True, timeout_s=2.0)["num_passed"] for name, program in CHEATS.items()
    }
    assert num_passed == dict.fromkeys(CHEATS, 0.0)


@pytest.mark.processes
@pytest.mark.parametrize("truth", [ADD, ASSERTS], ids=["calls", "asserts"])
@pytest.mark.parametrize(
    "answer",
    [
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x04[[[[",
        b"\x00\x03\x0d\x40" + b"[" * 200_000,
        b'\x00\x00\x00\x0b{"error":3}',
        b'\x00\x00\x00\x1d{"value":{"dict":[[[1],2]]}}  ',
        b'\x00\x00\x00\x17{"value":{"object":[]}}',
        b"\x00\x00\x00\x02[]",
    ],
    ids=["long", "broken", "deep", "error", "key", "object", "list"],
)
def test_a_forged_answer_fails_its_test_and_is_no_failure_of_the_reward(truth: Any, answer: bytes) -> None:
    program = f"import os, time\ndef add(a, b):\n    if a == 3: return 7\n    os.write(3, {answer[:99]!r})\n"
    program += f"    os.write(3, b'[' * {len(answer[99:])})\n    time.sleep(60)"
    assert result(program, truth, timeout_s=0.2)["num_passed"] == 0.0


@pytest.mark.processes
def test_two_objects_of_the_solution_are_compared_by_its_own_rule_and_no_other_way() -> None:
    # A limit of the harness: it cannot know whether two objects of the solution should be equal.
    assert passes(ALWAYS_EQUAL + "def f(x): return Any()", "assert f(1) == f(2)")
    assert not passes(ALWAYS_EQUAL + "def f(x): return Any()", "assert f(1) < 5")
    assert not passes(ALWAYS_EQUAL + "def f(x): return [Any(), (Any(),)]", "assert f(1) == [1, (2,)]")


@pytest.mark.processes
def test_the_process_of_a_program_has_its_input_and_not_what_is_expected() -> None:
    program = """
    import gc
    text = input()
    everything = [repr(x)[:10_000] for x in gc.get_objects()]
    print([mark for mark in (chr(73) + 'nput-8271', chr(79) + 'utput-8271') if any(mark in each for each in everything)])
    """  # noqa: E501
    assert "found \"['Input-8271']" in why(program, {"inputs": ["Input-8271"], "outputs": ["Output-8271"]})
