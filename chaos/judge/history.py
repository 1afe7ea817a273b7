"""The events of a run, as each process has recorded them: JSON lines, one for each event.

A line is written by one system call, so that a process which is killed leaves whole lines behind, and no thread waits
for another. All moments are of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from reconverge.kernel import Verdict

KEY_LENGTH_MAX: Final = 64
"""The longest key that is recorded as it is; of longer ones, the hash is recorded."""
TAIL_BYTES: Final = 32_768
OK, FAIL, UNKNOWN = "ok", "fail", "unknown"
"""The outcomes of an exchange: answered; surely not applied; applied or not, or yet to be."""
Lease = tuple[int, int]
"""A lease of a process: the number of the agent in the process, and of the shard. Rivals have one of each."""
ONLY: Final[Lease] = (0, 0)


class Decide(NamedTuple):
    """One decision."""

    t_ns: int
    took_ns: int
    key: str
    cost: int
    allowed: bool
    epoch: int
    hub_ns: int
    """The hub's time, by the node's estimate."""
    wall_ns: int
    """The machine's time."""
    known: bool
    touched: str = ""
    """The input or output of the decision, of which there should be none."""
    summed: bool = False
    """Whether the record is about many decisions, of which only the sum matters."""
    waited: bool = False
    """Whether the decision let other tasks of its loop run; only if requests ask the hub."""
    held_ns: int = 0
    """The time, in nanoseconds, for which its thread was ready to run meanwhile and others had the processors; only if
    requests ask the hub."""


class Held(NamedTuple):
    """One slot of a limit on work in progress."""

    asked_ns: int
    """The moment at which the node began to ask for it."""
    taken_ns: int
    """The moment at which the node had it, a little later than it was granted."""
    given_ns: int | None
    """The moment at which the node began to release it; None if the process ended first."""
    lease: Lease = ONLY
    """The lease on which it was taken."""


class Beside(NamedTuple):
    """The delay of an application without a limiter, which asked its loop to go on after as long as an ask may take."""

    t_ns: int
    late_ns: int


class Exchange(NamedTuple):
    """One exchange with the hub, from the node's side."""

    sent_ns: int
    heard_ns: int | None
    """The moment of its end; None if the process ended first."""
    account: str
    charged: int | None
    """The cost charged in this account's life, as the exchange reports it; None if it does not."""
    outcome: str
    kind: str = ""
    lease: Lease = ONLY
    """The lease that an answer extends."""
    census: int | None = None
    """The cost charged under the second limit, which counts the same, and may be reported later."""


class View(NamedTuple):
    """A node's estimate of the charges of all nodes since the beginning."""

    t_ns: int
    total: int
    staleness_s: float


class Health(NamedTuple):
    """The state that a node reports of itself."""

    t_ns: int
    state: str


class Unsure(NamedTuple):
    """The most that interrupted decisions may have charged without an answer."""

    t_ns: int
    cost: int


class Ages(NamedTuple):
    """The ages of a node's knowledge of each shard, in seconds."""

    t_ns: int
    by_shard: tuple[float, ...]


class Part(NamedTuple):
    """A fault of a part of the hub: of these shards and no others."""

    name: str
    begin_ns: int
    end_ns: int
    shards: frozenset[int]


class Asked(NamedTuple):
    """A node's estimate of the use of one window by all nodes, on request."""

    t_ns: int
    key: str
    epoch: int
    total: int


class Sight(NamedTuple):
    """The hub's data at some moment between two."""

    before_ns: int
    after_ns: int
    total: int
    census: int | None = None
    """The hub's total of a second limit with the same charges; None if there is none."""


class Late(NamedTuple):
    """A delay: the machine let the process go on later than it had asked for."""

    t_ns: int
    late_ns: int


@dataclass(slots=True)
class Life:
    """One contestant in one process."""

    who: str
    node: int
    pid: int = 0
    born_ns: int = 0
    """The moment at which it was ready."""
    decisions: list[Decide] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    ages: list[Ages] = field(default_factory=list)
    """Only if there are several shards."""
    health: list[Health] = field(default_factory=list)
    unsure: list[Unsure] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    """Only of one node, and only when there are no requests: a request makes a node report."""
    late: list[Late] = field(default_factory=list)
    slots: list[Held] = field(default_factory=list)
    last_ns: int = 0
    """The moment of its process's last line."""
    beside: list[Beside] = field(default_factory=list)
    """Only if requests ask the hub."""
    ordered: list[tuple[int, str]] = field(default_factory=list)
    escaped: list[str] = field(default_factory=list)
    """Exceptions that nothing caught."""
    facts: dict[str, Any] | None = None
    """The figures that it has recorded at the end; None if it was killed."""

    @property
    def admitted(self) -> int:
        """Returns the cost that it has admitted."""
        return sum(one.cost for one in self.decisions if one.allowed)

    def confirmed(self, *, census: bool = False) -> int:
        """Returns the admitted cost that the hub has confirmed, of the limit or of the second one."""
        by_account: dict[str, int] = {}
        for one in self.exchanges:
            charged = one.census if census else one.charged
            if one.outcome == OK and charged is not None:
                by_account[one.account] = max(by_account.get(one.account, 0), charged)
        return sum(by_account.values())


class Recorder:
    """Writes this process's history. After a fork the child writes its own."""

    def __init__(self, directory: Path, node: int) -> None:
        self._directory = directory
        self._node = node
        self._open = (0, -1)
        """The process and the file that it has opened; one value, as several threads read it."""
        self._numbers = count(1)
        self.now_ns = time.monotonic_ns

    def write(self, event: str, **facts: object) -> None:
        """Records one event."""
        pid, file = self._open
        if pid != os.getpid():
            pid = os.getpid()
            file = os.open(self._directory / f"node-{self._node}.{pid}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._open = pid, file
        os.write(file, json.dumps({"e": event, **facts}, separators=(",", ":")).encode() + b"\n")

    def decided(
        self,
        who: str,
        verdict: Verdict,
        *,
        key: str,
        cost: int,
        t_ns: int,
        took_ns: int,
        wall_ns: int,
        touched: str = "",
        summed: bool = False,
        waited: bool = False,
        held_ns: int = 0,
    ) -> None:
        """Records a decision, or many, with the sum of their costs."""
        allowed, epoch, hub_ns, known, *_ = verdict
        one = Decide(t_ns, took_ns, short(key), cost, allowed, epoch, hub_ns, wall_ns, known)
        self.write("decide", who=who, of=one._replace(touched=touched, summed=summed, waited=waited, held_ns=held_ns))

    def sent(
        self, who: str, account: str, charged: int | None, census: int | None = None, *, lease: Lease = ONLY
    ) -> int:
        """Records the beginning of an exchange. Returns its number, for `heard`."""
        number = next(self._numbers)
        self.write(
            "sent", who=who, n=number, t=self.now_ns(), account=account, charged=charged, census=census, lease=lease
        )
        return number

    def took(self, who: str, *, asked_ns: int, lease: Lease = ONLY) -> int:
        """Records that a slot was taken. Returns the moment, by which `gives` finds the slot again."""
        taken_ns = self.now_ns()
        self.write("took", who=who, t=taken_ns, asked=asked_ns, lease=lease)
        return taken_ns

    def gives(self, who: str, taken_ns: int) -> None:
        """Records that a slot is released now."""
        self.write("gives", who=who, t=self.now_ns(), taken=taken_ns)

    def heard(self, who: str, number: int, outcome: str, kind: str = "") -> None:
        """Records the end of an exchange."""
        self.write("heard", who=who, n=number, t=self.now_ns(), outcome=outcome, kind=kind)


def read_lives(paths: Iterable[Path]) -> list[Life]:
    """Reads the history of every contestant in every process."""
    return [life for path in sorted(paths) for life in _read(path)]


def last_view(path: Path, who: str) -> View | None:
    """Returns the last view that a process has recorded lately; None if there is none, or the process has ended."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        *lines, _ = file.read().split(b"\n")  # the last line may be incomplete
    for line in reversed(lines):
        if line.startswith(f'{{"e":"end","who":"{who}"'.encode()):
            return None
        if line.startswith(f'{{"e":"view","who":"{who}"'.encode()):
            event = json.loads(line)
            return View(event["t"], event["total"], event["staleness_s"])
    return None


def _read(path: Path) -> list[Life]:
    _, node, pid = path.stem.replace(".", "-").split("-")
    lives: dict[str, Life] = {}
    ways: dict[int, tuple[str, dict[str, Any]]] = {}
    common: list[dict[str, Any]] = []
    last_ns = 0
    for event in whole_lines(path):
        who = event.get("who")
        last_ns = max(last_ns, event.get("t", 0))
        if who is None:
            common.append(event)
            continue
        life = lives.setdefault(who, Life(who, int(node), int(pid)))
        match event["e"]:
            case "decide":
                life.decisions.append(Decide(*event["of"]))
            case "sent":
                ways[event["n"]] = who, event
            case "heard":
                _, sent = ways.pop(event["n"])
                life.exchanges.append(_exchange(sent, event["t"], event["outcome"], event["kind"]))
            case "took" | "gives" | "view" | "ages" | "asked" | "health":
                _add_look(life, event)
            case "unsure":
                life.unsure.append(Unsure(event["t"], event["cost"]))
            case "escaped":
                life.escaped.append(event["what"])
            case "end":
                life.facts = event["facts"]
            case other:
                raise ValueError(f"there is no event {other!r}")
    for who, sent in ways.values():
        lives[who].exchanges.append(_exchange(sent, None, UNKNOWN, "unanswered"))
    for life in lives.values():
        life.last_ns = last_ns
        life.exchanges.sort(key=lambda one: one.sent_ns)
        _add_common(life, common)
    return list(lives.values())


def _add_look(life: Life, event: dict[str, Any]) -> None:
    """Adds a record of a contestant's knowledge, or of its work in progress, at a moment."""
    match event["e"]:
        case "took" | "gives":
            _add_slot(life, event)
        case "view":
            life.views.append(View(event["t"], event["total"], event["staleness_s"]))
        case "ages":
            life.ages.append(Ages(event["t"], tuple(event["by_shard"])))
        case "health":
            life.health.append(Health(event["t"], event["state"]))
        case _:
            life.asked.append(Asked(event["t"], event["key"], event["epoch"], event["total"]))


def _add_slot(life: Life, event: dict[str, Any]) -> None:
    """Adds a record of a slot that was taken, or released."""
    if event["e"] == "took":
        life.slots.append(Held(event["asked"], event["t"], None, _lease(event)))
        return
    at = next(at for at in reversed(range(len(life.slots))) if life.slots[at].taken_ns == event["taken"])
    life.slots[at] = life.slots[at]._replace(given_ns=event["t"])


def _add_common(life: Life, common: list[dict[str, Any]]) -> None:
    """Adds an event of the whole process to each of its contestants."""
    for event in common:
        match event["e"]:
            case "born":
                life.born_ns = max(life.born_ns, event["t"])
            case "late":
                life.late.append(Late(event["t"], event["ns"]))
            case "beside":
                life.beside.append(Beside(event["t"], event["ns"]))
            case "ordered":
                life.ordered.append((event["t"], event["what"]))
            case "escaped":
                life.escaped.append(event["what"])
            case _:
                pass


def _exchange(sent: dict[str, Any], heard_ns: int | None, outcome: str, kind: str) -> Exchange:
    return Exchange(sent["t"], heard_ns, sent["account"], sent["charged"], outcome, kind, _lease(sent), sent["census"])


def _lease(event: dict[str, Any]) -> Lease:
    agent, shard = event["lease"]
    return agent, shard


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the facts of each line of a file, until one that a killed process has written in part."""
    found: list[dict[str, Any]] = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found


def short(key: str) -> str:
    """Returns a key as it is recorded."""
    if len(key) <= KEY_LENGTH_MAX:
        return key
    return "blake2b:" + blake2b(key.encode(errors="surrogatepass"), digest_size=8).hexdigest()
