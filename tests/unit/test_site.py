"""The documentation as a site: it is built without a warning, and reads as the same pages do on GitHub."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin

import pytest
from markdown_it import MarkdownIt

from verl_like.config.compose import compose

ROOT = Path(__file__).parents[2]
STEP = "verl_like/training/stages.py"
NOT_DRAWN = {
    "balance",
    "report",
    "validation",
    "checkpoint",
    "ref_reset",
}  # bookkeeping, and what is not part of every step
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "api.md"]  # that is made of docstrings
CHROMIUM = shutil.which("chromium")
COUNTED = ("h1", "h2", "h3", "li", "ol", "pre", "tr")


class Site:
    """Built pages by the page that each was made of, and what is in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = {path: Found.of(path) for path in sorted(folder.rglob("*.html"))}

    def of(self, page: Path) -> Found:
        place = page.relative_to(ROOT).with_suffix(".html")
        return self.pages[self.folder / (place.with_name("index.html") if page.name == "README.md" else place)]


class Found(HTMLParser):
    """Links, anchors, and counts of the tags of the page's own text."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.tags: Counter[str] = Counter()
        self._in_article = False

    @classmethod
    def of(cls, path: Path) -> Found:
        found = cls()
        found.feed(path.read_text())
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._in_article |= tag == "article"
        self.anchors |= {name for name in (values.get("id"), values.get("name")) if name}
        self.links += [link for link in (values.get("href"), values.get("src")) if link]
        self.tags[tag] += self._in_article

    def handle_endtag(self, tag: str) -> None:
        self._in_article &= tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Build the site as `make docs` does; a warning is an error there."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert built.returncode == 0, f"{built.stdout}\n{built.stderr}\nIf mkdocs is missing: make setup"
    assert "Documentation built" in built.stderr and "WARNING" not in built.stderr
    return Site(folder)


@pytest.mark.processes
def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Site) -> None:
    lost = []
    for path, page in site.pages.items():
        here = f"/{path.relative_to(site.folder)}"
        for link in page.links:
            if path.name == "404.html" or re.match(r"(https?|data|mailto|javascript):", link):
                continue
            target, _, anchor = urljoin(here, unquote(link)).partition("#")
            file = site.folder / target.lstrip("/")
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file() or (anchor and file in site.pages and anchor not in site.pages[file].anchors):
                lost.append(f"{here}: {link}")
    assert len(site.pages) > 30
    assert lost == []


@pytest.mark.processes
def test_nothing_is_fetched_from_elsewhere(site: Site) -> None:
    tags = r"""<(?:script|img|link rel="(?:stylesheet|preconnect|icon)")[^>]*(?:src|href)="(?:https?:)?//[^"]*"""
    fetched = re.compile(tags)
    assert [found for path in site.pages for found in fetched.findall(path.read_text())] == []


@pytest.mark.processes
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_search_works_where_the_site_is_opened_as_files_and_nothing_is_served(site: Site) -> None:
    """A browser starts no worker and reads no JSON there."""
    assert CHROMIUM is not None
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000", "--dump-dom"]
    page = (site.folder / "index.html").as_uri()
    shown = subprocess.run(
        [CHROMIUM, *quiet, f"{page}?q=watchdog"], capture_output=True, text=True, check=True, timeout=100
    ).stdout
    found = re.search(r'md-search-result__meta">(\d+) matching documents', shown)
    assert found is not None and int(found[1]) >= 3
    assert f'href="{site.folder.as_uri()}/docs/reliability.html?h=' in shown


@pytest.mark.processes
@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_a_page_has_the_same_lists_tables_and_blocks_as_on_github(page: Path, site: Site) -> None:
    # CommonMark, as GitHub reads it, takes lists without an empty line before them and with less indentation.
    there = Found()
    there.feed("<article>" + MarkdownIt("commonmark").enable("table").render(page.read_text()))
    here = site.of(page).tags
    assert {tag: here[tag] for tag in COUNTED} == {tag: there.tags[tag] for tag in COUNTED}


@pytest.mark.processes
def test_the_reference_has_the_docstrings_of_what_scripts_import(site: Site) -> None:
    import verl_like

    page = (ROOT / "docs/api.md").read_text()
    named = set(re.findall(r"^::: (\S+)$", page, re.MULTILINE))
    places = {name for name in named if name.rpartition(".")[2] in verl_like.__all__}
    assert {name.rpartition(".")[2] for name in places} == set(verl_like.__all__) - {"Config"}
    assert named <= site.of(ROOT / "docs/api.md").anchors
    assert "Ctrl-C ends the run cleanly" in (site.folder / "docs/api.html").read_text()


def test_the_picture_of_a_step_has_the_stages_of_the_loop() -> None:
    tree = ast.parse((ROOT / STEP).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "stage"]
    stages = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    drawn = re.findall(r'font-weight="600" font-size="10.5">(\w+)<', (ROOT / "docs/step.svg").read_text())
    assert len(drawn) == len(set(drawn)) and set(drawn) == stages - NOT_DRAWN


def recipes() -> list[str]:
    blocks = [block for page in PAGES for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)]
    return [block for block in blocks if "defaults:" in block]


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.splitlines()[0])
def test_a_recipe_that_a_page_prints_composes(recipe: str, tmp_path: Path) -> None:
    (tmp_path / "printed.yaml").write_text(recipe)
    assert compose(str(tmp_path / "printed.yaml"), []).config.model.path
