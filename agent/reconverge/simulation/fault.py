"""The faults of a simulated run, and the texts that describe them: `cut:half@2w+5w`, `loss:30%@0w+9w`, ..."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.errors import InvalidSetting


class FaultKind(Enum):
    """A kind of fault."""

    CUT = "cut"
    """No message passes between the fault's nodes and the hub; or only the requests, or only the replies, are lost."""
    DOWN = "down"
    """The hub refuses connections; its data are kept."""
    SLOW = "slow"
    """Messages take longer, by the factor in `amount`."""
    LOSS = "loss"
    """Each message is lost with the probability in `amount`."""
    REPEAT = "repeat"
    """Each request to the hub arrives once more, up to seconds later, with the probability in `amount`."""
    LOSE_DATA = "lose-data"
    """The hub loses all its data when the fault begins."""
    CRASH = "crash"
    """The fault's nodes are killed, and started again when the fault ends."""
    STOP = "stop"
    """The fault's nodes stop in good order, as in a deploy, and are started again when the fault ends."""
    OFFSET = "offset"
    """From the start, the wall clocks of the fault's nodes are wrong by `amount` seconds."""
    JUMP = "jump"
    """The wall clocks of the fault's nodes jump by `amount` seconds when the fault begins."""


class Direction(Enum):
    """The messages that a cut of the network loses: requests to the hub, replies from the hub, or both."""

    BOTH = "both"
    REQUESTS = "requests"
    REPLIES = "replies"


FORMS: Final = (
    "cut:NODES[:requests|:replies]@START+LENGTH, down@START+LENGTH, slow:FACTOR@START+LENGTH, loss:SHARE@START+LENGTH, "
    "repeat:SHARE@START+LENGTH, lose-data@START, crash:NODES@START+LENGTH, stop:NODES@START+LENGTH, "
    "offset:NODES:SECONDS, jump:NODES:SECONDS@START; NODES is a number, one, half or all; times are windows (2w), "
    "seconds (1.5s) or milliseconds (20ms)"
)
_TIMES: Final = re.compile(r"(?P<start>[0-9.]+)(?P<start_unit>w|s|ms)(?:\+(?P<length>[0-9.]+)(?P<length_unit>w|s|ms))?")
_LASTING: Final = (
    FaultKind.CUT,
    FaultKind.DOWN,
    FaultKind.SLOW,
    FaultKind.LOSS,
    FaultKind.REPEAT,
    FaultKind.CRASH,
    FaultKind.STOP,
)
_OF_NODES: Final = (FaultKind.CUT, FaultKind.CRASH, FaultKind.STOP, FaultKind.OFFSET, FaultKind.JUMP)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a run: its kind, its beginning and end in simulated time, and the indexes of its nodes."""

    kind: FaultKind
    start_ns: int
    end_ns: int
    nodes: frozenset[int] = frozenset()
    amount: float = 0.0
    """By kind: a factor, a probability from 0 to 1, or seconds."""
    direction: Direction = Direction.BOTH

    def active(self, now_ns: int) -> bool:
        """Whether the fault is in effect at the simulated time `now_ns`."""
        return self.start_ns <= now_ns < self.end_ns

    @classmethod
    def parse(cls, text: str, *, nodes: int, window_ns: int, random: Random) -> Fault:
        """Returns the fault that `text` describes, with the nodes it affects drawn at random.

        Raises InvalidSetting if `text` has none of the forms in FORMS.
        """
        what, _, when = text.partition("@")
        name, *words = what.split(":")
        try:
            kind = FaultKind(name)
        except ValueError:
            raise InvalidSetting("fault", text, f"unknown kind {name!r}; write {FORMS}") from None
        try:
            return cls._read(kind, words, when, nodes=nodes, window_ns=window_ns, random=random)
        except (ValueError, IndexError) as error:
            raise InvalidSetting("fault", text, f"{error}; write {FORMS}") from None

    @classmethod
    def _read(
        cls, kind: FaultKind, words: list[str], when: str, *, nodes: int, window_ns: int, random: Random
    ) -> Fault:
        start_ns, length_ns = _times(when, window_ns) if when or kind is not FaultKind.OFFSET else (0, 0)
        if (kind in _LASTING) != (length_ns > 0):
            raise ValueError(
                "needs a length: +LENGTH" if kind in _LASTING else "happens at one moment; leave +LENGTH out"
            )
        members: frozenset[int] = frozenset()
        if kind in _OF_NODES:
            if not words:
                raise ValueError(f"names no nodes for {kind.value}; write some, such as half")
            members = _members(words.pop(0), nodes, random)
        direction, amount = Direction.BOTH, 0.0
        if kind is FaultKind.CUT:
            direction = Direction(words.pop(0)) if words else Direction.BOTH
        elif kind in (FaultKind.SLOW, FaultKind.LOSS, FaultKind.REPEAT, FaultKind.OFFSET, FaultKind.JUMP):
            if not words:
                raise ValueError(f"names no amount for {kind.value}; write it after a colon")
            amount = _amount(kind, words.pop(0))
        if words:
            raise ValueError(f"has one part too many, {words[0]!r}; leave it out")
        return cls(kind, start_ns, start_ns + length_ns, members, amount, direction)


ENDS: Final = (FaultKind.CRASH, FaultKind.STOP)
"""Faults by which a process ends and another one is started in its place."""


def restarts(faults: Iterable[Fault]) -> int:
    """Returns how many processes are started in place of those that the faults kill or stop."""
    return sum(len(fault.nodes) for fault in faults if fault.kind in ENDS)


def kept_down(faults: Iterable[Fault], node: int, now_ns: int) -> bool:
    """Whether one of `faults` has ended the process of `node` and keeps it from being started again at `now_ns`."""
    return any(fault.kind in ENDS and fault.active(now_ns) and node in fault.nodes for fault in faults)


def offset_ns(faults: Iterable[Fault], node: int) -> int:
    """Returns by how many nanoseconds a node's wall clock is ahead of the true time; negative if it is behind."""
    offsets_s = [fault.amount for fault in faults if fault.kind is FaultKind.OFFSET and node in fault.nodes]
    return sum(round(offset_s * SECOND_NS) for offset_s in offsets_s)


def _times(text: str, window_ns: int) -> tuple[int, int]:
    match = _TIMES.fullmatch(text)
    if match is None:
        raise ValueError(f"has the invalid time {text!r}" if text else "names no time; write one, such as 2w")
    units = {"w": window_ns, "s": SECOND_NS, "ms": MILLISECOND_NS}
    start_ns = round(float(match["start"]) * units[match["start_unit"]])
    if match["length"] is None:
        return start_ns, 0
    length_ns = round(float(match["length"]) * units[match["length_unit"]])
    if length_ns == 0:
        raise ValueError(f"must have a length above 0 after the +, not {text!r}")
    return start_ns, length_ns


def _members(text: str, nodes: int, random: Random) -> frozenset[int]:
    count = {"one": 1, "half": nodes // 2, "all": nodes}.get(text)
    if count is None:
        if not text.isdigit():
            raise ValueError(f"names the nodes {text!r}; write a number, or one of the words one, half, all")
        count = int(text)
    if not 1 <= count <= nodes:
        raise ValueError(f"must apply to 1 to {nodes} nodes of the fleet, not to {count}")
    return frozenset(random.sample(range(nodes), count))


def _amount(kind: FaultKind, text: str) -> float:
    percent = text.endswith("%")
    amount = float(text.removesuffix("%").removesuffix("s")) / (100 if percent else 1)
    if kind in (FaultKind.LOSS, FaultKind.REPEAT) and not 0 <= amount <= 1:
        raise ValueError(f"has the share {text!r}, which is not from 0 to 1")
    if kind is FaultKind.SLOW and amount <= 0:
        raise ValueError(f"has the factor {text!r}, which is not above 0")
    if not abs(amount) < 1e6:
        raise ValueError(f"has the amount {text!r}, which is too large")
    return amount
