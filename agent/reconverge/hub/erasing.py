"""Messages of an operator, the nodes and a hub to erase all data of one identity, such as a customer."""

# Theory of operation.
#
# The problem. A customer asks to be forgotten. Data about the customer lie in two kinds of places: at the hub, under
# keys that bear its name, and in the memory of every node. A node reports absolute counts, so a node that does not
# learn of the erasure brings the erased data back with its next report. And a key must not be taken from the hub while
# a node holds an allowance of it: the hub would grant that allowance once more, and a strict limit would be exceeded.
#
# Why a reset is not enough. A reset is sent and stored in the cell of its key; so the key with the name stays at the
# hub for as long as charges from before may still be reported.
#
# How it works. The operator stores an order at the hub, and all nodes read orders once in a while. An order does not
# contain the name of the identity, or it would be one more place with that name. It has a mark, a hash of the identity
# (`erasure_mark`), which each node compares with the marks of the names that it has.
#
#     operator   order ──┬── erase what the hub has, but for keys that nodes hold ─── and again, until none is left
#     node 1             └── read ── last report, allowances given back ── drop the key at the hub ── nothing is known
#     node 2, cut off    ─────────────────────────── heals ── reads ── last report ── drop the key at the hub
#
# A key leaves a node as it does for want of room (`kernel/eviction.py`): with a last report, in which the node holds
# nothing and the hub takes over what was used. So nothing is forgiven and nothing granted twice as long as a node goes
# on using the key. The hub drops a key that no live node has any more, and with it what was used: from then on the
# identity begins anew, as after a reset.
#
# An order is kept for KEPT_S. A node that was cut off for so long as to bring a key back drops it within LOOK_NS of the
# hub's next answer. A node that started after an order has nothing from before, and ignores it.
#
# Usage is erased at the hub by the identity. Each node looks for orders before each report of usage, forgets its rows
# of the identity, and takes back what it has reported of them, and only that (`UsageEraser.retract`): the usage of
# other identities, or of a later customer with that name, stays. In the history of contracts each version keeps its
# number and its content without that customer; pages with the name are deleted at once; the new index is signed, so
# readers accept it as any other. A key made of several facts (such as user and address) is erased if any of them is the
# identity. A hub that has only hashes cannot find a fact in a key, so nodes name the whole keys that they have.
#
# The command reports what is left: a key in use stays and counts, since erasing is no way around a limit. A search goes
# through all keys with SCAN, which the operator's user of Redis may do and an agent's may not. Exported events,
# backups, logs and the hub of all regions are out of reach (`docs/operate/identities.md`). A client that reads the hub
# and has a list of identities can find out which were erased, unless there is a `key_secret`. Nodes of older versions
# do not know of orders, and keep what they have until they end.
#
# Other ways. If keys were deleted at the hub at once, nodes would bring them back, and exceed a strict limit. An order
# with the name would be one more place with it, and the longest-lived. If a change only ended the contract, and left
# the history as it is, the pages would contain the name for a year.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from reconverge.clock import MICROSECOND_NS, SECOND_NS

KEPT_S: Final = 62 * 86_400.0
"""For how many seconds the hub keeps an order to erase: as long as it keeps the keys of a limit per month."""
ORDERS_MAX: Final = 10_000
"""The most orders to erase that a hub keeps; beyond that the oldest are dropped. A node reads all orders once, in 1
MB."""
LOOK_NS: Final = SECOND_NS
"""The nanoseconds between two checks of a node for new orders; a check is one small question."""
SLACK_US: Final = 2_000_000
"""A node carries out orders given up to this many microseconds before its start, because its estimate of the hub's
clock may be wrong by a round trip."""
NAME_BYTES_MAX: Final = 1024
"""The longest identity that can be erased, in bytes of UTF-8. No customer's identity and no part of a key is longer."""
SEPARATOR: Final = "|"
"""The character between the parts of a key that is made of several facts, such as user and address. Contracts and the
guards of web frameworks make such keys."""
_NOW_ONLY_US: Final = 1 << 52
"""A moment later than any order. A node asks for orders after it to get only the hub's time."""


class Erasure(NamedTuple):
    """An order to erase an identity."""

    at_us: int
    """The moment of the order in microseconds of the hub's clock; no two orders of a hub have the same moment."""
    mark: str
    """The hash of the identity, by `erasure_mark`."""


class Erasures(NamedTuple):
    """The hub's answer to a node: the orders to erase identities that were given after a moment, and the hub's time."""

    hub_us: int
    orders: Sequence[Erasure]
    """The orders, the oldest first."""


class Erased(NamedTuple):
    """The result of one step in erasing an identity at a hub."""

    cursor: int
    """The cursor to pass to the next step; 0 if this step was the last."""
    cells: int
    """How many keys of limits were removed."""
    kept: int
    """How many keys of limits were found and kept, because a live node has them."""
    rows: int
    """How many rows and events of usage were removed."""


class OrderReader(Protocol):
    """A hub from which nodes read orders to erase identities: the part of `reconverge.hub.Eraser` that nodes use."""

    async def erasures(self, since_us: int) -> Erasures: ...


class OrderLog:
    """Reads a hub's orders to erase identities for one node, each order once."""

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        """When the node started, by the monotonic clock. It had no data then, so it ignores older orders."""
        self._since_us: int | None = None

    async def news(self, hub: OrderReader, now_ns: int) -> frozenset[str]:
        """Returns the marks (`erasure_mark`) of all orders given since the last call. Raises HubUnavailable."""
        since_us = self._since_us
        if since_us is None:
            read = await hub.erasures(_NOW_ONLY_US)
            since_us = read.hub_us - (now_ns - self._began_ns) // MICROSECOND_NS - SLACK_US
        orders = (await hub.erasures(since_us)).orders
        self._since_us = max([since_us, *(order.at_us for order in orders)])
        return frozenset(order.mark for order in orders)


def erasure_mark(name: str, namespace: str) -> str:
    """Returns the hash by which an order names an identity: 16 bytes in hexadecimal digits, salted with `namespace`.

    With a `key_secret`, `name` is the keyed hash of the identity, so that no guess can be tested without the secret.
    """
    salt = blake2b(namespace.encode(), digest_size=16).digest()
    raw = name.encode("utf-8", "surrogatepass")
    return blake2b(raw, digest_size=16, salt=salt, person=b"reconverge gone").hexdigest()


def names_of(identity: str) -> tuple[str, str]:
    """Returns both names under which limits may count an identity: itself, and its hash if it is too long for a key."""
    raw = identity.encode("utf-8", "surrogatepass")
    return identity, f"~{blake2b(raw, digest_size=16).hexdigest()}"


def names_in(key: str) -> Iterator[str]:
    """Yields the names that may stand in `key`: the key itself, and each part if | divides it into several."""
    yield key
    if SEPARATOR in key:
        for fact in key.split(SEPARATOR):
            yield fact.replace("%7C", SEPARATOR).replace("%25", "%")
