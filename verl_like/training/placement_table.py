"""The placement table: which group of workers hosts each role of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Group = TypeVar("Group")
HYBRID = "worker"  # the group with one worker for each device, or for each device of the trainer


@dataclass(frozen=True, slots=True)
class PlacementTable:
    """Where roles run.

    Args:
        group_of: the name of the group that hosts each role.
    """

    group_of: Mapping[str, str]

    def roles_in(self, group: str) -> frozenset[str]:
        """Return the roles that the workers of a group build."""
        return frozenset(role for role, name in self.group_of.items() if name == group)

    def hosts(self, role: str) -> bool:
        return role in self.group_of

    def find(self, role: str, groups: Mapping[str, Group]) -> Group:
        """Return the group that hosts a role, out of groups by name."""
        assert role in self.group_of, f"role {role} has no group; the table has {sorted(self.group_of)}"
        name = self.group_of[role]
        assert name in groups, f"role {role} is placed in group {name}, but only {sorted(groups)} exist"
        return groups[name]


def colocated(roles: Iterable[str]) -> PlacementTable:
    """Place every role in the hybrid workers, together on every device."""
    return PlacementTable(dict.fromkeys(roles, HYBRID))


def table_of(roles: Iterable[str], pools: Collection[str]) -> PlacementTable:
    """Place the roles of a run: those with a pool in its workers, and the others in the hybrid workers."""
    return PlacementTable({role: role if role in pools else HYBRID for role in roles})
