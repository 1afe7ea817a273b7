"""A hub's findings about itself, with remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

COMMAND = "  "
"""A line of a remedy that begins with this is a command, to be copied as it is."""


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but not as well as it should, or could not be checked."""
    PROBLEM = "problem"
    """It does not work, or what the agent promises does not hold."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    level: Level
    fact: str
    """One sentence without a full stop; never a password or a user's name."""
    remedy: str = ""
    """How to mend it; empty when there is nothing to mend."""


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
    """Everything that a hub could say about itself."""

    findings: Sequence[Finding]
    pings: Sequence[Trip] = ()
    """The cheapest questions there are; empty when there was no way to ask."""
    exchanges: Sequence[Trip] = ()
    """Real exchanges, in a namespace of their own; empty when none was possible."""


@runtime_checkable
class Diagnosable(Protocol):
    """A hub that knows more about itself than whether it can be exchanged with."""

    async def diagnose(self) -> Diagnosis:
        """Say how the hub is; what cannot be checked is a finding too.

        Promises: nothing that any agent uses is touched; what was written for the check is taken away again, or
        named in a finding; in any state of the hub, nothing is raised but cancellation.
        """
        ...
