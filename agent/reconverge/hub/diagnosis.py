"""The results of a hub's check of its own server, as facts with remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

COMMAND = "  "
"""A line of a remedy that begins with this is a command, to be copied as it is."""


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """The hub works, but not as well as it should; or it could not be checked."""
    PROBLEM = "problem"
    """The hub does not work, or the agent's promises do not hold with it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    level: Level
    fact: str
    """One sentence without a full stop; never a password or a user's name."""
    remedy: str = ""
    """The steps that an operator can take; empty if nothing is wrong."""


class Trip(NamedTuple):
    """One question to the hub and its answer, by this machine's monotonic clock."""

    sent_ns: int
    received_ns: int
    hub_us: int
    """The hub's clock at some moment in between."""

    @property
    def took_ns(self) -> int:
        """How long the answer took."""
        return self.received_ns - self.sent_ns


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings of one check, with the round trips that it measured."""

    findings: Sequence[Finding]
    pings: Sequence[Trip] = ()
    """Round trips of the cheapest question, such as PING; empty if none was possible."""
    exchanges: Sequence[Trip] = ()
    """Round trips of real exchanges, in a namespace of their own; empty if none was possible."""


@runtime_checkable
class Diagnosable(Protocol):
    """A hub that can check its own server, beyond whether exchanges work."""

    async def diagnose(self) -> Diagnosis:
        """Check the hub's server; a check that is impossible is a finding, too.

        Promises: nothing that any agent uses is touched; what was written for the check is taken away again, or
        named in a finding; in any state of the hub, nothing is raised but cancellation.
        """
        ...
