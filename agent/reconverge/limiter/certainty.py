"""How certain this node is about a key: whether the hub has answered about it, and whether a refusal would stand.

For storages and guards that wait for the hub in doubt; decisions themselves never do.
"""

from __future__ import annotations

from reconverge import kernel
from reconverge.limiter.limiter import Limiter


def asked_if_new(limiter: Limiter, key: str) -> bool:
    """Ask the hub about a key that is new to this node. Returns whether it was, so that an answer is to come.

    A node that is alone has nothing to wait for, and neither has one that counts the key together with others because
    it knows too many.
    """
    tables = limiter.tables
    # A key that is known costs no more than this look, which takes no lock.
    if tables[0].kernel.alone or all(table.cells.get(key) is not None for table in tables):
        return False
    limiter.warm([key])
    return all(table.cells.get(key) is not None for table in tables)


def unheard(limiter: Limiter, key: str) -> bool:
    """Whether this node counts the key, and has heard nothing of it from the hub."""
    for table in limiter.tables:
        cell = table.cells.get(key)
        if cell is not None and not cell.heard:
            return True
    return False


def is_certain(limiter: Limiter, key: str, cost: int) -> bool:
    """Whether a refusal is certain: by what all nodes have said, there is no room for the request before some time."""
    return kernel.is_certain(limiter.table, key, cost)


def known_keys(limiter: Limiter) -> list[str]:
    """The keys that this node counts by themselves."""
    return list(limiter.table.cells)


def is_known(limiter: Limiter, key: str) -> bool:
    """Whether this node counts a key by itself."""
    return key in limiter.table.cells


def leave_spare_at_hub(limiter: Limiter, *, leave: bool = True) -> None:
    """Have no node hold what is not asked for of a small quota, see `Table.leave_spare_at_hub`; or, with False, again.

    On a node without a hub nothing changes.
    """
    if not limiter.table.kernel.alone:
        limiter.table.leave_spare_at_hub(leave=leave)


def leaves_spare_at_hub(limiter: Limiter) -> bool:
    """Whether what is spare of a quota lies at the hub."""
    return not limiter.table.keeps_spare
