"""A table of plain text whose cells cannot control the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from verl_like.config.render import on_one_line

MAX_WIDTH = 44  # of a cell; longer values are cut
GAP = "  "


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows with aligned columns; the first row is a heading."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(cell_len(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines = [
        GAP.join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    ]
    rule = GAP.join("-" * width for width in widths)
    return "\n".join([lines[0], rule, *lines[1:]])


def _cell(text: str) -> str:
    shown = on_one_line(text)
    return shown if cell_len(shown) <= MAX_WIDTH else f"{set_cell_size(shown, MAX_WIDTH - 3)}..."
