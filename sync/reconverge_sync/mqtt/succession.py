"""How one member goes on where another stopped: a leader's ledger and usage given away, and taken over."""

# Theory of operation.
#
# The usage goes first, while its leader still answers batches and claims: it may be long, and a leader that is silent
# for a tenure has no successor but a new election. From then on that leader refuses calls about usage, or what it takes
# in would be lost with it. The ledger comes last, because with its last part the successor begins.
#
# A successor without all of the usage, and of the same term, begins with none: that is lost data, which the nodes that
# live tell again.

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from reconverge_sync.merge.rule import LedgerShard
from reconverge_sync.merge.usage import UsageState
from reconverge_sync.mqtt.election import Role
from reconverge_sync.mqtt.handover import LedgerReader, write_ledger
from reconverge_sync.mqtt.leader import Candidate
from reconverge_sync.mqtt.messages import MalformedMessage, MessageKind
from reconverge_sync.mqtt.usage_handover import UsageReader, write_usage

BYTES_MAX: Final = 256 << 20
"""A ledger that is handed over is no larger, nor is usage."""

Deliver = Callable[[str, MessageKind, bytes], Awaitable[None]]
"""Has a message taken by the broker, for a member."""


class Successor:
    """The state that one member has taken over so far of the leader that it follows."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._ledger: tuple[str, LedgerReader, int] | None = None
        """Its sender, the parts that have come, and their bytes."""
        self._usage: tuple[str, UsageReader, int] | None = None
        self._whole_usage: tuple[str, int, UsageState] | None = None
        """Its sender and term."""

    def forget(self) -> None:
        """The connection is gone: no further part will come."""
        self._ledger = self._usage = self._whole_usage = None

    def take_usage(self, sender: str, payload: bytes) -> None:
        """Take in a part of the usage, from the leader alone. Raises MalformedMessage."""
        self._check_sender(sender)
        known, reader, size = self._usage or ("", UsageReader(), 0)
        if known != sender:
            reader, size = UsageReader(), 0
        size += len(payload)
        self._usage = None  # nothing more is expected, if this part is not what was
        if size > BYTES_MAX:
            raise MalformedMessage("full")
        whole = reader.read(payload)
        if whole is None:
            self._usage = sender, reader, size
        else:
            self._whole_usage = (sender, *whole)

    def take_ledger(self, sender: str, payload: bytes) -> bool:
        """Take in a part of a ledger, likewise; returns whether this member goes on. Raises MalformedMessage."""
        self._check_sender(sender)
        known, reader, size = self._ledger or ("", LedgerReader(sender), 0)
        if known != sender:
            reader, size = LedgerReader(sender), 0
        size += len(payload)
        self._ledger = None
        if size > BYTES_MAX:
            raise MalformedMessage("full")
        whole = reader.read(payload)
        if whole is None:
            self._ledger = sender, reader, size
            return False
        claim, ledger = whole
        usage, self._whole_usage = self._whole_usage, None
        fits = usage is not None and usage[:2] == (sender, claim.term)
        if not self._candidate.inherit(claim, ledger, usage[2] if usage is not None and fits else None):
            raise MalformedMessage("unasked")
        return True

    def _check_sender(self, sender: str) -> None:
        election = self._candidate.election
        if election.role is not Role.FOLLOWER or election.leader != sender:
            raise MalformedMessage("unasked")


async def give_usage(state: UsageState, term: int, successor: str, deliver: Deliver) -> None:
    """Send all of the usage to a successor. Raises HubUnavailable."""
    for part in write_usage(state, term):
        await deliver(successor, MessageKind.USAGE, part)


async def give_ledger(ledger: LedgerShard, term: int, successor: str, deliver: Deliver) -> None:
    """Send the ledger to a successor. Raises HubUnavailable."""
    for part in write_ledger(ledger, term):
        await deliver(successor, MessageKind.LEDGER, part)
