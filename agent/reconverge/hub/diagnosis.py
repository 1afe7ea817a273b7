"""The results of a hub's check of its own server: for each check a fact and a remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

COMMAND = "  "
"""A line of a remedy that begins with this is a command, to be copied as it is."""


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """The hub works, but not as well as it should; or the check could not be made."""
    PROBLEM = "problem"
    """The hub does not work, or a promise of the agent does not hold."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    level: Level
    fact: str
    """The finding in one sentence, without a full stop. It never contains a password or a user's name."""
    remedy: str = ""
    """The steps that an operator can take; empty if nothing is wrong."""


class Trip(NamedTuple):
    """One exchange with the hub, with the times at which it began and ended, by this machine's monotonic clock."""

    sent_ns: int
    received_ns: int
    hub_us: int
    """The hub's clock at a moment between the two times."""

    @property
    def took_ns(self) -> int:
        """Returns how long the exchange took, in nanoseconds."""
        return self.received_ns - self.sent_ns


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings of a hub's check of its own server, and the times of trial exchanges."""

    findings: Sequence[Finding]
    pings: Sequence[Trip] = ()
    """Round trips of the cheapest question, such as PING; empty if none was possible."""
    exchanges: Sequence[Trip] = ()
    """Round trips of real exchanges, in a namespace made for the check; empty if none was possible."""


@runtime_checkable
class Diagnosable(Protocol):
    """A hub that can check itself in more ways than by an exchange."""

    async def diagnose(self) -> Diagnosis:
        """Checks the hub and returns the findings; a check that cannot be made is a finding too.

        Promises: nothing that any agent uses is touched; what was written for the check is removed again, or named in a
        finding; in any state of the hub, nothing is raised but cancellation.
        """
        ...
