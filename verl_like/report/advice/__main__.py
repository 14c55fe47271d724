"""Print ``docs/advice.md``."""

from __future__ import annotations

import sys

from verl_like.report.advice.table import markdown

HEAD = (
    "# Advice on a run\n\n"
    "Made by `python -m verl_like.report.advice > docs/advice.md`; edit the rules in `verl_like/report/advice/`, not "
    "this\npage. The [report](report.md) of a run shows the advice of the rules whose threshold the run exceeds. "
    "Alarms come\nfirst, and tuning is proposed only for a run without alarms.\n\n"
)


def text() -> str:
    """Return the page."""
    return HEAD + markdown()


if __name__ == "__main__":
    sys.stdout.write(text())
