"""Suggestions of the known name that the user probably meant."""

from __future__ import annotations

from collections.abc import Iterable

CUTOFF = 0.75  # similarity of two names; below it, suggestions are wrong more often than right
# Common words for an option; they win over options with similar spelling.
COMMON_WORDS = {
    "batch_size": "data.train_batch_size",
    "epochs": "trainer.total_epochs",
    "eval_steps": "trainer.test_freq",
    "gae_lambda": "algorithm.lam",
    "gpus": "cluster.workers_per_node",
    "kl_coef": "actor.kl_loss_coef",
    "learning_rate": "actor.optim.lr",
    "max_steps": "trainer.total_training_steps",
    "max_tokens": "data.max_response_length",
    "name": "trainer.experiment_name",
    "num_gpus": "cluster.workers_per_node",
    "steps": "trainer.total_training_steps",
    "temp": "rollout.temperature",
    "wandb": "trainer.loggers",
}


def suggestion(found: str, known: Iterable[str], *, cutoff: float = CUTOFF) -> str:
    """Return ``; did you mean X?``, the end of a message, or an empty string if no known name is similar.

    A dotted name is compared as a whole and by its last word, so a right leaf in the wrong section is found too.

    Args:
        cutoff: required similarity, from 0 to 1; lower it if all known names are of one kind.
    """
    import difflib  # here, because few commands need it

    known = list(known)
    section, _, leaf = found.rpartition(".")
    meant = COMMON_WORDS.get(leaf, "")
    for name in (meant, meant.rpartition(".")[2]):  # the second form matches the fields of a section
        if leaf not in known and name in known:
            return f"; did you mean {name}?"
    near = _same_letters(found, known) or difflib.get_close_matches(found, known, n=1, cutoff=cutoff)
    if not near:
        # For equal leaves, a name of the same section wins, then the first.
        ordered = sorted(known, key=lambda name: not name.startswith(f"{section}."))
        by_leaf = {name.rsplit(".", 1)[-1]: name for name in reversed(ordered)}
        near = [by_leaf[name] for name in difflib.get_close_matches(leaf, by_leaf, n=1, cutoff=cutoff)]
    return f"; did you mean {near[0]}?" if near else ""


def _same_letters(found: str, known: list[str]) -> list[str]:
    """Return the known names with the letters of ``found`` in another order.

    difflib counts a swap as two changes, so that it would take gpro for gspo instead of grpo.
    """
    letters = sorted(found)
    return [name for name in known if sorted(name) == letters]
