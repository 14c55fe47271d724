"""Count the settings of other projects that verl_like knows: ``python -m benchmarks.compat``, after ``make peers``.

verl's settings are all leaves of its trainer's trees for FSDP and vLLM in ten versions. OpenRLHF's are the flags of its
programs for PPO, SFT, DPO and reward models, EasyR1's are the keys of its example. A setting counts as mapped if it
sets an option here or has no effect here. Unsupported settings are refused, with a hint what to use instead. Prints one
JSON object as its last line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from benchmarks._easyr1_keys import EASYR1_KEYS
from benchmarks._machine import print_result
from benchmarks._peer_trees import OPENRLHF_PROGRAMS, VERL_VERSIONS, openrlhf_flags, verl_tree
from verl_like_migrate.tables import table


def counted(peer: str, keys: Iterable[str], *, job: str = "train") -> dict[str, int]:
    """Count keys by class; ``job`` is the command of verl_like that corresponds to the other project's."""
    known = table(peer, job)
    entries = [known.entry(known.called(key)[0]) for key in sorted(set(keys))]
    kinds = ["unclassified" if entry is None else entry.kind for entry in entries]
    return {
        "keys": len(kinds),
        **{
            kind: kinds.count(kind)
            for kind in ("renamed", "converted", "without_effect", "unsupported", "unclassified")
        },
    }


def main() -> None:
    trees = {version: verl_tree(version) for version in VERL_VERSIONS}
    of_openrlhf = Counter[str]()
    for job in OPENRLHF_PROGRAMS:
        of_openrlhf.update(counted("openrlhf", openrlhf_flags(job), job=job))
    found = {
        "verl": counted("verl", (key for tree in trees.values() for key in tree)),
        "easyr1": counted("easyr1", EASYR1_KEYS),
        "openrlhf": dict(of_openrlhf),
    }
    print(json.dumps(found))
    mapped = {peer: counts["keys"] - counts["unsupported"] - counts["unclassified"] for peer, counts in found.items()}
    print_result(
        {
            "verl_keys": found["verl"]["keys"],
            "verl_mapped": mapped["verl"],
            "easyr1_keys": found["easyr1"]["keys"],
            "easyr1_mapped": mapped["easyr1"],
            "openrlhf_flags": found["openrlhf"]["keys"],
            "openrlhf_mapped": mapped["openrlhf"],
            "unclassified": sum(counts["unclassified"] for counts in found.values()),
        }
    )


if __name__ == "__main__":
    main()
