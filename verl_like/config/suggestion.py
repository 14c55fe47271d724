"""Did-you-mean: the known name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(found: str, known: Iterable[str]) -> str:
    """``; did you mean X?``, the end of a message, or nothing when no known name is near.

    A dotted name is compared as a whole and by its last word, so a right leaf in the wrong section is found too.
    """
    import difflib  # here, because nearly every command does without

    known = list(known)
    near = difflib.get_close_matches(found, known, n=1, cutoff=0.75)
    if not near:
        by_leaf = {name.rsplit(".", 1)[-1]: name for name in reversed(known)}
        near = [
            by_leaf[leaf] for leaf in difflib.get_close_matches(found.rsplit(".", 1)[-1], by_leaf, n=1, cutoff=0.75)
        ]
    if not near:
        near = difflib.get_close_matches(found, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
