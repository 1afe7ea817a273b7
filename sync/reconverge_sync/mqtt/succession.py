"""Hands a leader's ledger and usage over to its successor, and receives them at the successor."""

# Theory of operation.
#
# The leader sends the usage first, while it still answers batches and sends claims: the usage may be long, and a leader
# that is silent for a tenure is replaced by a new election. Once it has begun to send the usage, it refuses calls about
# usage, as usage that it still counted would be lost. The ledger comes last, because its last part makes the successor
# begin.
#
# A successor that has not received all of the usage, in the same term, begins without any: the live nodes report it
# again, as after a loss.

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
"""The most bytes of a ledger, and the most bytes of usage, that a successor accepts."""

Deliver = Callable[[str, MessageKind, bytes], Awaitable[None]]
"""Sends a message of a kind to a member, and waits until the broker has taken it."""


class Successor:
    """Collects the ledger and the usage that a leader hands over to this member, and takes them over when complete."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._ledger: tuple[str, LedgerReader, int] | None = None
        """The ledger's sender, the reader of its parts, and their bytes so far."""
        self._usage: tuple[str, UsageReader, int] | None = None
        self._whole_usage: tuple[str, int, UsageState] | None = None
        """The sender, the term and the content of the usage, once its last part has come; None before."""

    def forget(self) -> None:
        """Drops the parts received so far, because the connection is lost and no further part will come."""
        self._ledger = self._usage = self._whole_usage = None

    def take_usage(self, sender: str, payload: bytes) -> None:
        """Reads a part of the usage. Raises MalformedMessage if it is invalid, or `sender` is not the leader."""
        self._check_sender(sender)
        known, reader, size = self._usage or ("", UsageReader(), 0)
        if known != sender:
            reader, size = UsageReader(), 0
        size += len(payload)
        self._usage = None  # if this part is invalid, no further part is accepted
        if size > BYTES_MAX:
            raise MalformedMessage(
                "full", f"the usage that is handed over has {size} bytes; at most {BYTES_MAX} are taken"
            )
        whole = reader.read(payload)
        if whole is None:
            self._usage = sender, reader, size
        else:
            self._whole_usage = (sender, *whole)

    def take_ledger(self, sender: str, payload: bytes) -> bool:
        """Reads a part of the ledger. Raises MalformedMessage if it is invalid, or `sender` is not the leader.

        Returns whether the ledger is complete with this part, and this member succeeds the leader.
        """
        self._check_sender(sender)
        known, reader, size = self._ledger or ("", LedgerReader(sender), 0)
        if known != sender:
            reader, size = LedgerReader(sender), 0
        size += len(payload)
        self._ledger = None
        if size > BYTES_MAX:
            raise MalformedMessage(
                "full", f"the ledger that is handed over has {size} bytes; at most {BYTES_MAX} are taken"
            )
        whole = reader.read(payload)
        if whole is None:
            self._ledger = sender, reader, size
            return False
        claim, ledger = whole
        usage, self._whole_usage = self._whole_usage, None
        fits = usage is not None and usage[:2] == (sender, claim.term)
        if not self._candidate.inherit(claim, ledger, usage[2] if usage is not None and fits else None):
            raise MalformedMessage(
                "unasked", f"it hands over the ledger of term {claim.term}, whose leader this member does not follow"
            )
        return True

    def _check_sender(self, sender: str) -> None:
        election = self._candidate.election
        if election.role is not Role.FOLLOWER or election.leader != sender:
            raise MalformedMessage(
                "unasked", f"{sender} hands over its data, and is not the leader that this member follows"
            )


async def give_usage(state: UsageState, term: int, successor: str, deliver: Deliver) -> None:
    """Sends all of the usage to a successor. Raises HubUnavailable."""
    for part in write_usage(state, term):
        await deliver(successor, MessageKind.USAGE, part)


async def give_ledger(ledger: LedgerShard, term: int, successor: str, deliver: Deliver) -> None:
    """Sends the ledger to a successor. Raises HubUnavailable."""
    for part in write_ledger(ledger, term):
        await deliver(successor, MessageKind.LEDGER, part)
