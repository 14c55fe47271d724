"""Check the English of pages, docstrings, comments, messages and names of tests: ``python tests/tools/english.py``.

Code, in blocks or between backquotes, is skipped. Each finding is printed as ``file:line: words found: what to write
instead``.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = {Path(__file__), ROOT / "tests/unit/test_english.py"}  # contain the words to avoid
PAGES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "docker", "recipes", "benchmarks"),
    *("requirements", "tests", "verl_like*"),
)
MAX_WORDS = 45  # of a sentence on a page
MIN_WORDS_OF_A_MESSAGE = 4

# Pattern -> what to write instead. Patterns ignore case; none of them judges grammar.
PHRASES: dict[str, str] = {
    r"\b(told|tells?|telling)\b": "report, print, show, say",
    r"\bbehind\b(?! (an? |the )?(\w+ )?(interface|protocol|proxy|firewall|flag|switch))": "after",
    r"\bbesides?\b": "next to, in parallel with, in addition to",
    r"\bof (one's|its|their|your|our|his) own\b": "its own X, your own X",
    r"\b(stand|stands|stood|standing) still\b": "hang",
    r"\b(come|comes|came|coming) again\b": "is retried, is drawn again, returns",
    r"\bin order\b(?! (to|of|that)\b)": "cleanly, sorted, in sequence",
    r"(?<!ground )(?<!ground-)\btruths?\b(?!-value)": "ground truth",
    r"\b(an?|the|one|each|every|no|first|second|closer|last) looks?\b": "check",
    r"\broom\b": "capacity, space",
    r"\b(an?|the|one|its|no|some|each|every|which|whose|own) place\b": "location, position",
    r"\bknobs?\b": "option",
    r"\b(outposts?|beacons?|capsules?)\b": "node watchdog, heartbeat, step snapshot",
    r"\bwho(m|so)?ever\b": "a caller that, any process that",
    r"\bhereof|thereof|whereupon|wherein\b": "of it, in which",
    r"\b(go|goes|went|going) on\b": "continue",
    r"\b(lie|lies|lay) (in|at|on|below|under|there|here)\b": "is in, is at",
    r"\bmends?\b|\bmended\b": "fix, repair",
    r"\bsharers?\b": "sequence-parallel rank",
    r"\bof which\b[^.]*\b(of which|whose)\b|\bwhose\b[^.]*\b(of which|whose)\b": "two sentences",
    r"\bis had\b|\bare had\b|\bbe had\b": "is available",
    r"\bits like\b": "similar ones",
}
# First words of a docstring of a function that begin no sentence: it needs a verb, in the imperative.
NO_VERB = re.compile(r"(What|Whether|How|Where|Who|Whose|Those|Why|The|Which|When|All|Each|Every) ")


def phrases(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (offset, words found, remedy) of each forbidden phrase."""
    for pattern, remedy in PHRASES.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield match.start(), match[0], remedy


def without_code(text: str) -> str:
    """Return ``text`` with code, links' targets and HTML comments blanked out; offsets and lines stay."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    text = re.sub(r"^(```|~~~).*?^\1", blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(    |\t).*$", blank, text, flags=re.MULTILINE)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    text = re.sub(r"``[^`]+``|`[^`]+`", blank, text)
    return re.sub(r"\]\([^)]*\)", blank, text)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, sentence) of the paragraphs of a page; tables and headings are left out."""
    for paragraph in re.finditer(r"(?:^(?!\s*$|#|\||>).+\n?)+", text, re.MULTILINE):
        start = paragraph.start()
        for sentence in re.finditer(r"\S.*?(?:[.!?:](?=\s)|\Z|(?=\n\s*[-*\d]+[. ]))", paragraph[0], re.DOTALL):
            yield start + sentence.start(), sentence[0]


def in_page(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, found, remedy) of a Markdown page."""
    prose = without_code(text)
    for offset, found, remedy in phrases(prose):
        yield prose.count("\n", 0, offset) + 1, found, remedy
    for offset, sentence in sentences(prose):
        if (count := len(sentence.split())) > MAX_WORDS:
            yield prose.count("\n", 0, offset) + 1, f"a sentence of {count} words", f"at most {MAX_WORDS}"


def in_module(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, found, remedy) of a Python file's docstrings, comments, messages and names of tests."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if node.name.startswith("test_"):  # its docstring is a statement
                yield from ((node.lineno, found, remedy) for _, found, remedy in phrases(node.name.replace("_", " ")))
            elif docstring and (match := NO_VERB.match(docstring)) and not is_property(node):
                yield node.body[0].lineno, f'docstring "{match[0]}..."', "begin with a verb: Return the ..., Yield ..."
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = without_code(node.value) if "\n" in node.value else re.sub(r"`[^`]+`", "", node.value)
            if len(node.value.split()) >= MIN_WORDS_OF_A_MESSAGE:
                yield from (
                    (node.lineno + text.count("\n", 0, at), found, remedy) for at, found, remedy in phrases(text)
                )
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from ((token.start[0], found, remedy) for _, found, remedy in phrases(without_code(token.string)))


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a method is read like an attribute, so that a noun describes it."""
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def problems(files: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each finding in these files."""
    for file in files:
        text = file.read_text(encoding="utf-8")
        found = in_page(text) if file.suffix == ".md" else in_module(text)
        for line, words, remedy in sorted(found):
            yield f"{file.relative_to(ROOT)}:{line}: {' '.join(words.split())}: {remedy}"


def all_files() -> list[Path]:
    """Return every page and module that is checked."""
    tops = [path for pattern in PAGES for path in ROOT.glob(pattern)]
    found = {top for top in tops if top.is_file()}
    found |= {file for top in tops if top.is_dir() for file in top.rglob("*") if file.suffix in (".md", ".py")}
    return sorted(found - EXAMPLES)


def main(arguments: list[str]) -> int:
    """Print the findings; return 1 if there are any."""
    found = list(problems([Path(argument).resolve() for argument in arguments] or all_files()))
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
