"""Contracts that a broker retains: the index, which only the leader of shard 0 replaces, and pages by their digest.

A broker sends each member the index when it connects, and every change of the index at once. So reading the index costs
no message, and a node knows of a change before it looks.
"""

# Theory of operation.
#
# The problem. `swap_index` replaces an index only if it is still the one that its caller has read, and a broker cannot
# do that: it takes every message, and the last one counts. The ledger of the leader is no place for contracts either,
# because it is lost with its process.
#
# How it works. The broker retains the index, and the leader of shard 0 alone writes it, one change after the other. It
# compares with the index that it has received itself. Before it compares, it sends a fence on the same topic and waits
# until that is back: a broker keeps the order of one topic, so any index of the former leader has come by then. It
# answers when the new index has come back, if it still may answer. It does not rely on the broker's confirmation,
# because a broker confirms also messages that its access list drops.
#
# A leader that was stalled may write late, when another one has written. So each index has a stamp: the term of its
# leader, and a number. All members accept only an index with a higher stamp, and the leader sends its own index once
# more when it receives a lower one.
#
#     leader A, term 7                                   A's index, stamp 7.4, comes late and is not taken in
#     leader B, term 8       fence, compare, index 8.1   B has 8.1 retained again
#
# Any client that may write to the topic can forge an index. Readers with the secret of the fleet reject it and keep
# their contracts, but members do not have the secret, and the index with the highest stamp counts: a forged one with
# the highest possible stamp would stay for good, also for new members. So a member that knows an index rejects stamps
# that no leader can have written after it: of a term that no member has claimed, or with a number too far from the
# last. The leader sends its own index again then. A member that knows no index accepts a forged one; the next swap
# replaces it, as its writer has read it.
#
# A page is named by its digest, so pages have no order: their writer sends a page, waits until it is back, and needs no
# leader. A page contains the end of its time. Brokers of MQTT 5 delete it then; with other brokers the leader looks for
# expired pages now and then, and deletes them. So that many pages need not be sent again with each change, they are
# kept somewhat longer than asked for, by SLACK.

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from secrets import token_bytes
from struct import Struct
from typing import Any, Final, NamedTuple

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge_sync.mqtt.calling.calls import Call
from reconverge_sync.mqtt.election import TERM_MAX
from reconverge_sync.mqtt.messages import MalformedMessage, MessageKind, body, is_whole, sealed
from reconverge_sync.mqtt.retained.wire import Awaited, Wire

TOPIC: Final = "contracts"
PAGES_TOPIC: Final = "page"
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
INDEX_BYTES_MAX: Final = 1 << 17
"""The most bytes of an index: twice the longest that any reader accepts."""
PAGE_BYTES_MAX: Final = 1 << 19
"""The most bytes of a page: twice the longest that any reader accepts."""
PAGES_AT_ONCE: Final = 32
"""The most pages to which a member subscribes at once, because all of them together may be long."""
SWAP_SHARE: Final = 0.75
"""If the leader's own messages have not come back after this fraction of the caller's time, the leader fails the swap.
"""
SLACK: Final = 8
"""A page is kept for longer than requested, by the requested time divided by this number. So it need not be sent again
until less than the requested time is left."""
PURGED_AFTER_S: Final = 3600
"""For how many seconds after it has expired a page is not deleted yet, so that a writer that names it again still finds
it."""
SWEPT_AT_ONCE_MAX: Final = 1024
"""The most pages that one sweep deletes."""
PAGES_MAX: Final = 1 << 16
"""The most pages that all contracts of a namespace can have. A sweep counts further pages as rejected messages."""
KEPT_S_MAX: Final = 366 * 86_400 * (SLACK + 2) // SLACK
"""The longest time for which a page can be kept, in seconds: contracts end within 366 days, and a clock may be wrong by
weeks. A page that ends later is not of this fleet, and is deleted."""
NUMBERS_PASSED_MAX: Final = 1 << 20
"""By how much the number of a new index may exceed the number of the last index of the same term that this member has
received."""
_INDEX: Final = Struct("<QQQ")
"""The head of a stored index: the two numbers of its stamp, and its end in seconds since 1970. The index follows."""
_UNTIL: Final = Struct("<Q")
_NUMBER_MAX: Final = 2**53


class Stamp(NamedTuple):
    """The age of an index of contracts: the term of the leader that wrote it, and the index's number in that term."""

    term: int
    number: int


class PostedIndex:
    """The index of the contracts, as one connection has received it.

    While this member is the leader of shard 0, it also replaces the index here.
    """

    def __init__(
        self,
        wire: Wire,
        clock: Clock,
        *,
        wait_ns: int,
        term: Callable[[], int],
        claimed: Callable[[], int],
        may_answer: Callable[[int], bool],
    ) -> None:
        self._wire = wire
        self._clock = clock
        self._wait_ns = wait_ns
        self._term = term
        """Returns the term of this member as a leader."""
        self._claimed = claimed
        """Returns the highest term in any claim that this member has received."""
        self._may_answer = may_answer
        """Returns whether this member is the leader, and may answer within the given nanoseconds."""
        self._awaited = Awaited()
        self._turn = asyncio.Lock()
        self._stamp = Stamp(0, 0)
        self._message = b""
        """The message with the index, as it was received."""
        self._payload: bytes | None = None
        self._until_s = 0
        self.changed = asyncio.Event()
        """An event that is set when a change of the index arrives, and then replaced by a new event."""

    def read(self, bytes_max: int) -> bytes | None:
        if self._payload is None or self._until_s <= self._now_s():
            return None
        return self._payload[: bytes_max + 1]

    def hear(self, message: bytes) -> None:
        """Processes a message on the topic of the index; an empty one deletes the index. Raises MalformedMessage."""
        if not message:
            self._take(Stamp(0, 0), b"", None, 0)
            return
        if message[3:4] == bytes([MessageKind.FENCE]):
            body(message, MessageKind.FENCE)
            self._awaited.hear(message)
            return
        try:
            stamp, until_s, payload = read_index(message)
        except MalformedMessage:
            self._mend()
            raise
        if stamp > self._stamp:
            if not self._may_follow(stamp):
                self._mend()
                raise MalformedMessage("stamp", f"an index has the stamp {stamp}, which cannot follow {self._stamp}")
            self._take(stamp, message, payload, until_s)
        elif message != self._message:
            self._mend()
            raise MalformedMessage("late", f"an index has the stamp {stamp}, which is not above {self._stamp}")
        self._awaited.hear(message)

    def _may_follow(self, stamp: Stamp) -> bool:
        """Returns whether a leader may have written `stamp` after the index that this member knows."""
        known = self._stamp
        if not self._message:
            return True
        written = known.number if stamp.term == known.term else 0
        return stamp.term <= max(known.term, self._claimed()) and stamp.number <= written + NUMBERS_PASSED_MAX

    def _take(self, stamp: Stamp, message: bytes, payload: bytes | None, until_s: int) -> None:
        self._stamp, self._message, self._payload, self._until_s = stamp, message, payload, until_s
        self.changed.set()
        self.changed = asyncio.Event()

    def _mend(self) -> None:
        """As the leader, sends the known index once more, because the broker retains another message in its place."""
        if self._message and self._may_answer(0):
            with contextlib.suppress(HubUnavailable):
                self._wire.post(TOPIC, self._message, retain=True, keep_s=max(1, self._until_s - self._now_s()))

    def clear(self, problem: HubUnavailable) -> None:
        """Drops the index, because the connection is lost; the next connection receives it again."""
        self._stamp, self._message, self._payload, self._until_s = Stamp(0, 0), b"", None, 0
        self._awaited.fail(problem)

    async def swap(self, arguments: Call) -> bool:
        """As the leader, replaces the index as a member's call requests; returns whether it was replaced.

        Lasts no longer than an answer may take. Raises MalformedMessage and HubUnavailable.
        """
        payload, over, bytes_max, keep_s = _swap(arguments)
        try:
            async with asyncio.timeout(SWAP_SHARE * self._wait_ns / SECOND_NS), self._turn:
                await self._send(sealed(MessageKind.FENCE, token_bytes(8)), retain=False)
                if self.read(bytes_max) != over:
                    return False
                if not self._may_answer(self._wait_ns):
                    raise HubUnavailable(
                        "timeout",
                        "another member may lead by now, so the index of contracts was not changed; try again",
                        applied=False,
                    )
                message = write_index(self._next_stamp(), self._now_s() + keep_s, payload)
                await self._send(message, retain=True, keep_s=keep_s)
                return True
        except TimeoutError:
            advice = f"the leader's messages do not come back; let its user read and write {self._wire.shown(TOPIC)}"
            raise HubUnavailable("permission", advice) from None

    async def _send(self, message: bytes, *, retain: bool, keep_s: float | None = None) -> None:
        with self._awaited.back(message) as back:
            self._wire.post(TOPIC, message, retain=retain, keep_s=keep_s)
            await back

    def _next_stamp(self) -> Stamp:
        stamp = Stamp(self._term(), 1) if self._term() > self._stamp.term else Stamp(*self._stamp)
        if stamp == self._stamp:
            stamp = stamp._replace(number=stamp.number + 1)
        if stamp.number > _NUMBER_MAX:
            problem = f"{self._wire.shown(TOPIC)} has an index of no leader; send it an empty retained message"
            raise HubUnavailable("protocol", problem, applied=False)
        return stamp

    def _now_s(self) -> int:
        return self._clock.wall_ns() // SECOND_NS


class PostedPages:
    """Sends pages of contracts to the broker, which retains them, and receives those that a caller asks for."""

    def __init__(self, wire: Wire, clock: Clock, *, rejects: Counter[str]) -> None:
        self._wire = wire
        self._clock = clock
        self._rejects = rejects
        self._awaited = Awaited()
        self._watched: Counter[str] = Counter()
        """The number of callers for which this member has subscribed to a page, by digest."""
        self._heard: dict[str, bytes] = {}
        """The subscribed pages that have come, by digest."""
        self._over: list[str] | None = None
        """The digests of pages to be deleted, while `sweep` looks through all pages; else None."""
        self._found = 0
        """The number of pages that have come during `sweep`."""

    async def get(self, digest: str, *, bytes_max: int) -> bytes | None:
        async with self._watching([digest]):
            until_s, payload = self._page(digest)
        return payload[: bytes_max + 1] if until_s > self._now_s() else None

    async def put(self, digest: str, payload: bytes, *, keep_s: float) -> None:
        """Sends a page to be retained, and waits until it has come back. Raises HubUnavailable."""
        if len(payload) > PAGE_BYTES_MAX:
            problem = (
                f"a page of contracts has {len(payload)} bytes, and at most {PAGE_BYTES_MAX} are taken; shorten them"
            )
            raise HubUnavailable("protocol", problem, applied=False)
        async with self._watching([digest]):
            await self._send({digest: payload}, keep_s)

    async def keep(self, digests: Sequence[str], *, keep_s: float) -> list[str]:
        missing: list[str] = []
        for first in range(0, len(digests), PAGES_AT_ONCE):
            some = digests[first : first + PAGES_AT_ONCE]
            async with self._watching(some):
                pages = {digest: self._page(digest) for digest in some}
                now_s = self._now_s()
                missing += [digest for digest in some if pages[digest][0] <= now_s]
                fits = range(int(now_s + keep_s), int(now_s + keep_s + 2 * keep_s / SLACK) + 1)
                again = {digest: payload for digest, (until_s, payload) in pages.items() if until_s not in fits}
                await self._send({each: payload for each, payload in again.items() if each not in missing}, keep_s)
        return missing

    async def _send(self, pages: dict[str, bytes], keep_s: float) -> None:
        """Sends pages, to whose topics this member is subscribed, to be retained; waits until all have come back."""
        kept_s = keep_s + keep_s / SLACK
        until_s = int(self._now_s() + kept_s) + 1
        for digest, payload in pages.items():
            message = sealed(MessageKind.PAGE, _UNTIL.pack(until_s) + payload)
            with self._awaited.back(message) as back:
                self._wire.post(f"{PAGES_TOPIC}/{digest}", message, retain=True, keep_s=kept_s + 1)
                await back

    @contextlib.asynccontextmanager
    async def _watching(self, digests: Sequence[str]) -> AsyncIterator[None]:
        """A context in which this member is subscribed to pages; at its beginning, all retained ones have come."""
        for digest in digests:
            if DIGEST.fullmatch(digest) is None:
                problem = (
                    f"{digest[:80]!r} is no digest of a page of contracts, which has hexadecimal digits; {ONE_VERSION}"
                )
                raise HubUnavailable("protocol", problem, applied=False)
        new = [digest for digest in digests if digest not in self._watched]
        self._watched.update(digests)
        try:
            if new:
                await self._wire.subscribe([f"{PAGES_TOPIC}/{digest}" for digest in new])
            await self._wire.echoed()
            yield
        finally:
            self._watched.subtract(digests)
            gone = [digest for digest in set(digests) if self._watched[digest] <= 0]
            for digest in gone:
                del self._watched[digest]
                self._heard.pop(digest, None)
            if gone:
                self._wire.unsubscribe([f"{PAGES_TOPIC}/{digest}" for digest in gone])

    def _page(self, digest: str) -> tuple[int, bytes]:
        """Returns the end of a subscribed page in seconds since 1970, and its content; `(0, b"")` for a missing one."""
        return read_page(self._heard[digest]) if digest in self._heard else (0, b"")

    def hear(self, digest: str, message: bytes) -> None:
        """Processes a page that has come; an empty message stands for a deleted page. Raises MalformedMessage."""
        if digest in self._watched:
            self._heard.pop(digest, None)
            if message:
                read_page(message)
                self._heard[digest] = message
                self._awaited.hear(message)
        if self._over is not None and message:
            self._look_at(self._over, digest, message)

    def _look_at(self, over: list[str], digest: str, message: bytes) -> None:
        """Adds the digest of a retained page to `over`, a list of pages to delete, if it has expired or is invalid."""
        self._found += 1
        if self._found > PAGES_MAX:
            self._rejects["pages"] += 1
        if len(over) < SWEPT_AT_ONCE_MAX:
            try:
                until_s, _ = read_page(message)
            except MalformedMessage:
                until_s = 0
            if not self._now_s() - PURGED_AFTER_S <= until_s <= self._now_s() + KEPT_S_MAX:
                over.append(digest)

    def clear(self, problem: HubUnavailable) -> None:
        """Drops all pages, and fails all waits for pages with `problem`, because the connection is lost."""
        self._heard.clear()
        self._awaited.fail(problem)

    async def sweep(self) -> int:
        """As the leader, deletes pages that expired PURGED_AFTER_S ago, and invalid ones; returns how many."""
        everything = [f"{PAGES_TOPIC}/+"]
        self._over, self._found = [], 0
        try:
            await self._wire.subscribe(everything)
            await self._wire.echoed()
            for digest in self._over:
                self._wire.post(f"{PAGES_TOPIC}/{digest}", b"", retain=True)
            await self._wire.echoed()
            return len(self._over)
        finally:
            self._over = None
            self._wire.unsubscribe(everything)

    def _now_s(self) -> int:
        return self._clock.wall_ns() // SECOND_NS


def write_index(stamp: Stamp, until_s: int, payload: bytes) -> bytes:
    """Returns a message with an index, its stamp, and its end in seconds since 1970. Raises HubUnavailable."""
    return sealed(MessageKind.INDEX, _INDEX.pack(*stamp, until_s) + payload)


def read_index(message: bytes) -> tuple[Stamp, int, bytes]:
    """Returns the stamp, the end in seconds since 1970, and the content of an index in a message.

    Raises MalformedMessage if the message is invalid.
    """
    content = body(message, MessageKind.INDEX)
    try:
        term, number, until_s = _INDEX.unpack_from(content)
    except struct.error:
        raise MalformedMessage("index", f"an index of {len(content)} bytes is cut off in its head") from None
    if not (1 <= term <= TERM_MAX and 1 <= number <= _NUMBER_MAX):
        raise MalformedMessage("index", f"an index has term {term} and number {number}; valid is 1 to {TERM_MAX}")
    return Stamp(term, number), until_s, content[_INDEX.size :]


def read_page(message: bytes) -> tuple[int, bytes]:
    """Returns the end in seconds since 1970 and the content of a page in a message. Raises MalformedMessage."""
    content = body(message, MessageKind.PAGE)
    if len(content) < _UNTIL.size:
        raise MalformedMessage("page", f"a page of {len(content)} bytes is cut off in its head")
    return _UNTIL.unpack_from(content)[0], content[_UNTIL.size :]


def swap_call(payload: bytes, over: bytes | None, bytes_max: int, keep_s: float) -> Call:
    """Returns the arguments of the call that replaces the index. Raises HubUnavailable if the index is too long."""
    if len(payload) > INDEX_BYTES_MAX:
        problem = (
            f"an index of contracts has {len(payload)} bytes, and at most {INDEX_BYTES_MAX} can be stored; shorten it"
        )
        raise HubUnavailable("protocol", problem, applied=False)
    return [payload, over, bytes_max, max(1, round(keep_s))]


def _swap(arguments: Call) -> tuple[bytes, bytes | None, int, int]:
    match arguments:
        case [bytes(payload), bytes() | None as over, bytes_max, keep_s] if len(payload) <= INDEX_BYTES_MAX:
            if is_whole(bytes_max) and is_whole(keep_s, 1):
                bounds: Any = bytes_max, keep_s
                return payload, over, *bounds
        case _:
            pass
    raise MalformedMessage(
        "call", f"a call that swaps the index of contracts has {len(arguments)} arguments, or an invalid one"
    )
