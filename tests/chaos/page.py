"""The matrix as a table that people read."""

from __future__ import annotations

from collections.abc import Sequence

from tests.chaos.play import Outcome


def markdown(outcomes: Sequence[Outcome]) -> str:
    """One row for each case."""
    lines = [
        "| process | stage | fault | outcome | seconds to the verdict | numbers equal | left behind | held |",
        "|---|---|---|---|---:|---|---|---|",
    ]
    for outcome in outcomes:
        case = outcome.case
        verdict = "" if outcome.verdict_s is None else f"{outcome.verdict_s:.1f}"
        equal = {None: "", True: "yes", False: "no"}[outcome.is_equal]
        left = outcome.num_left + outcome.num_leaked
        cells = (
            case.process,
            case.stage or "any",
            case.fault,
            case.expected,
            verdict,
            equal,
            str(left) if left else "nothing",
            "no" if outcome.problems else "yes",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
