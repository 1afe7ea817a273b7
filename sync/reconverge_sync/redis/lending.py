"""The loans and wishes of a region at a Redis; `merge/loans.py` defines them.

Wishes (needs of a loan) are in the hash of the shard: one field for each cell, named like the cell's own hash without
the shard's prefix. Loans are in a field of the cell's hash. `exchange.lua` keeps both, and the scripts WISHES and LEND
read and change them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgpack

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.checking.answers import shown
from reconverge.hub.report import SCHEMA_VERSION, WHOLE_MAX, Lent, Loan, Status, Wish, Wishes
from reconverge_sync.redis.lua.scripts import script
from reconverge_sync.redis.stored import unpacked

CELLS: Final = f"c{SCHEMA_VERSION}:"
"""The beginning of the name of each cell that can get a loan, with the version of the schema."""
LOANS_MAX: Final = 256
"""The most loans in one call, so that no node has to wait for long until the server is free again."""
WISHES: Final = script("now", "wishes")
LEND: Final = script("now", "lend")


def lend_arguments(lender: str, sequence: int, loans: Sequence[Loan]) -> tuple[list[str], list[str | int]]:
    """Returns the names of the cells and the arguments for the script LEND. Raises HubUnavailable for invalid loans."""
    if not (0 < len(lender) <= 128 and 0 < sequence <= WHOLE_MAX and len(loans) <= LOANS_MAX):
        problem = f"the batch {sequence} of {len(loans)} loans of {lender[:80]!r} is invalid; send at most {LOANS_MAX}"
        raise HubUnavailable("protocol", problem, applied=False)
    arguments: list[str | int] = [lender, sequence, ""]
    for cell, amount, until_us in loans:
        if not (cell.startswith(CELLS) and 0 <= amount <= WHOLE_MAX and 0 <= until_us <= WHOLE_MAX):
            problem = f"a loan of {amount} until {until_us} us has an invalid cell or number; {ONE_VERSION}"
            raise HubUnavailable("protocol", problem, applied=False)
        arguments += [amount, until_us]
    return [loan.cell for loan in loans], arguments


def read_wishes(reply: Any) -> Wishes:
    """Returns the wishes in the reply of the script WISHES. Raises HubUnavailable for an invalid reply."""
    try:
        hub_us, generation, lease_us, *flat = reply
        named = zip(flat[::2], flat[1::2], strict=True)
        wishes = tuple(_wish(str(name, "utf-8"), packed) for name, packed in named)
        return Wishes(int(hub_us), str(generation, "utf-8"), _whole(lease_us), wishes)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        problem = (
            f"the list of cells that need loans, from a region's hub, cannot be read: {str(error)[:200]}; {ONE_VERSION}"
        )
        raise HubUnavailable("protocol", problem) from error


def read_lent(reply: Any, *, loans: int) -> Lent:
    """Returns the result of making `loans` loans, from the reply of the script LEND.

    Raises HubUnavailable for an invalid reply.
    """
    try:
        hub_us, generation, stale, *held = reply
        if len(held) != loans:
            raise ValueError(f"{loans} loans were sent, but the answer has {len(held)}")
        status = Status.STALE if stale else Status.MERGED
        return Lent(int(hub_us), str(generation, "utf-8"), status, tuple(_whole(each, least=-1) for each in held))
    except (ValueError, TypeError) as error:
        problem = f"the answer about {loans} loans of a region cannot be read: {str(error)[:200]}; {ONE_VERSION}"
        raise HubUnavailable("protocol", problem) from error


def _wish(name: str, packed: Any) -> Wish:
    limit, *numbers = unpacked(packed)
    expected = len(Wish._fields) - 2
    if type(limit) is not str or not name.startswith(CELLS) or len(numbers) != expected:
        raise ValueError(
            f"the cell {name!r:.40} of the limit {shown(limit)} has {len(numbers)} numbers; valid are cells whose"
            f" names begin with {CELLS}, with {expected} numbers"
        )
    return Wish(name, limit, *map(_whole, numbers))


def _whole(value: object, *, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= WHOLE_MAX:
        raise ValueError(f"{value!r:.40} is not a whole number from {least} to {WHOLE_MAX}")
    return value
