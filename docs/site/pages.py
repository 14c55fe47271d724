"""A hook of MkDocs: pages keep their repository paths on the site, so that links are right in both.

MkDocs knows one folder of pages. Here pages are in several folders and link to each other and to files of code. All of
these are passed to it under their paths from the root. The navigation is what docs/README.md lists, under its headings.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "recipes", "benchmarks", "requirements", "docker", "verl_like_graders", "verl_like_migrate")
INDEX = ROOT / "docs/README.md"
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """Take the navigation from the list of pages."""
    config.nav = [{"Home": "README.md"}, {"All pages": relative(INDEX)}, *sections(INDEX)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the repository's pages, and the files that they link to, in place of the files of docs/."""
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    found = pages(ROOT)
    paths = dict.fromkeys([*found, *(file for page in found for file in linked(page)), *styles_and_scripts(config)])
    urls = config.use_directory_urls
    return Files([*(File(relative(path), str(ROOT), config.site_dir, urls) for path in paths), *of_theme])


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave out the roles of docstrings (such as ``:meth:``), which mean nothing to a reader."""
    return re.sub(r":(?:meth|func|class|mod|attr):(?=<code)", "", html)


def pages(root: Path) -> list[Path]:
    """Return all pages, those of the root first."""
    return [*sorted(root.glob("*.md")), *(page for name in FOLDERS for page in sorted((root / name).rglob("*.md")))]


def linked(page: Path) -> list[Path]:
    """Return the files, other than pages, that a page shows or links to."""
    links = (link for link in _LINK.findall(page.read_text()) if ":" not in link)
    targets = (Path(os.path.normpath(page.parent / link)) for link in links)
    return [target for target in targets if target.is_file() and target.suffix != ".md"]


def sections(index: Path) -> list[dict[str, list[str]]]:
    """Return the pages that the list names first in each row, by the heading above them."""
    found: dict[str, list[str]] = {}
    for line in index.read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
            found[heading] = []
        elif line.startswith("| ["):
            targets = (index.parent / link for link in _LINK.findall(line.split(" | ")[0]))
            found[heading] += [relative(Path(os.path.normpath(target))) for target in targets]
    return [{heading: paths} for heading, paths in found.items()]


def styles_and_scripts(config: MkDocsConfig) -> list[Path]:
    """Our own; plugins bring theirs."""
    named = [*config.extra_css, *config.extra["polyfills"]]
    return [path for path in (ROOT / str(name) for name in named) if path.is_file()]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
