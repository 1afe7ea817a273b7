"""Hubs with one fault each, to show that the contract finds it."""

from __future__ import annotations

import asyncio
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import pytest

from reconverge.clock import Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.reading import KeyQuestion, KeyReadings
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Answer, Batch, CellAnswer, CellReport, LimitReport, Status, Totals
from reconverge_sync.memory import MemoryHub
from reconverge_sync.merge.bounds import LEASE_MAX_US
from reconverge_sync.merge.ledger import Entry
from reconverge_sync.merge.reading import read_keys
from reconverge_sync.redis.hub import RedisHub


def _cells(batch: Batch, change: Callable[[CellReport], CellReport]) -> Batch:
    return batch._replace(cells=tuple(change(cell) for cell in batch.cells))


def _told(name: str, change: Callable[[Batch], Batch]) -> type[MemoryHub]:
    """Returns a class of hubs to which each batch comes changed."""

    class Told(MemoryHub):
        async def exchange(self, batch: Batch) -> Answer:
            return await super().exchange(change(batch))

    Told.__name__ = name
    return Told


def _answering(name: str, change: Callable[[Answer], Answer]) -> type[MemoryHub]:
    """Returns a class of hubs that change each answer."""

    class Answering(MemoryHub):
        async def exchange(self, batch: Batch) -> Answer:
            return change(await super().exchange(batch))

    Answering.__name__ = name
    return Answering


def _each_report(change: Callable[[CellReport, Batch], CellReport]) -> Callable[[Batch], Batch]:
    return lambda batch: _cells(batch, lambda cell: change(cell, batch))


def _each_limit(change: Callable[[LimitReport], LimitReport]) -> Callable[[Batch], Batch]:
    return lambda batch: batch._replace(limits=tuple(map(change, batch.limits)))


def _each_answer(change: Callable[[CellAnswer], CellAnswer]) -> Callable[[Answer], Answer]:
    return lambda answer: answer._replace(cells=tuple(map(change, answer.cells)))


def _keyed(name: str, change: Callable[[str], str]) -> type[MemoryHub]:
    return _told(name, _each_report(lambda cell, _: cell._replace(key=change(cell.key))))


Generous = _answering("Generous", _each_answer(lambda cell: cell._replace(allowance=cell.allowance + 1)))
"""Grants one more than is free."""
Trusting = _told("Trusting", _each_report(lambda cell, batch: cell._replace(key=f"{batch.node} {cell.key}")))
"""Grants to each node as if it were the only one."""
Patient = _told("Patient", lambda batch: batch._replace(lease_us=LEASE_MAX_US))
"""Never gives a node up."""
Hasty = _told("Hasty", lambda batch: batch._replace(lease_us=batch.lease_us // 2))
"""Gives a node up before its lease is over."""
Grand = _told("Grand", _each_limit(lambda limit: limit._replace(capacity=max(100, limit.capacity))))
"""Uses the largest capacity instead of the smallest."""
Piecemeal = _told("Piecemeal", _each_report(lambda cell, _: cell._replace(ask=0)))
"""Grants a part of a cost that a node asks for as a whole."""
Hoarding = _told(
    "Hoarding", _each_report(lambda cell, _: cell._replace(asked=cell.asked + 1) if cell.waiting else cell)
)
"""Grants more than the waiting requests to a node that asks."""
Unforgiving = _told("Unforgiving", _each_report(lambda cell, _: cell._replace(reset_us=0)))
"""Does not pass a reset on."""
NameCounting = _told("NameCounting", lambda batch: batch._replace(account=batch.node))
"""Keeps lifetime totals under a node's name, which changes, instead of its account."""
LimitBlind = _told("LimitBlind", _each_limit(lambda limit: limit._replace(name="limit")))
"""Counts a key once for all limits."""
Reversing = _answering("Reversing", lambda answer: answer._replace(cells=answer.cells[::-1]))
"""Answers cells in another order than they were reported in."""
Rounding = _told("Rounding", _each_report(lambda cell, _: cell._replace(current=int(float(f"{cell.current:.6g}")))))
"""Rounds numbers to six digits."""
Shardless = _told("Shardless", lambda batch: batch._replace(shard=0))
"""Keeps all shards in one place."""
Forgetful = _answering("Forgetful", _each_answer(lambda cell: cell._replace(previous=0, last_demand=0)))
"""Forgets the use of the window before."""
Mangling = _keyed("Mangling", str.casefold)
"""Changes keys, as a careless encoding does."""
Stripping = _keyed("Stripping", str.strip)
"""Strips white space from keys."""
Normalizing = _keyed("Normalizing", lambda key: unicodedata.normalize("NFC", key))
"""Treats letters that look the same as the same."""
Truncating = _keyed("Truncating", lambda key: key.split("\x00", 1)[0])
"""Ends keys at a zero byte, as C does."""
Shortening = _keyed("Shortening", lambda key: key.encode()[:255].decode(errors="ignore"))
"""Keeps only 255 bytes of a key."""
Tagged = _keyed("Tagged", lambda key: key.partition("{")[2].partition("}")[0] or key)
"""Uses only the text between braces, as a Redis Cluster does."""


class Maximum(MemoryHub):
    """Keeps the largest count that it ever received, as if counts could only rise."""

    def __init__(self, *, clock: Clock | None = None, shards: int = 1) -> None:
        super().__init__(clock=clock, shards=shards)
        self._kept: Counter[tuple[str, str]] = Counter()

    def keep(self, before: int, count: int) -> int:
        """Returns the count that it takes for the newest."""
        return max(before, count)

    async def exchange(self, batch: Batch) -> Answer:
        for cell in batch.cells:
            self._kept[batch.node, cell.key] = self.keep(self._kept[batch.node, cell.key], cell.current)
        return await super().exchange(
            _cells(batch, lambda cell: cell._replace(current=self._kept[batch.node, cell.key]))
        )


class Accumulating(Maximum):
    """Takes running counts for differences, and adds them up."""

    def keep(self, before: int, count: int) -> int:
        return before + count


class Frozen(MemoryHub):
    """Reads what is stored as if no time had passed since the last merge."""

    async def exchange(self, batch: Batch) -> Answer:
        self._merged_us = self._clock.wall_ns() // 1000
        return await super().exchange(batch)

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        return read_keys(self._shards[shard], questions, self._merged_us)


class Noting(MemoryHub):
    """Takes a reader for a node that needs one of each key that it reads."""

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        self._reads = getattr(self, "_reads", 0) + 1
        for limit, key in questions:
            epoch = self._clock.wall_ns() // 1000 // limit.window_us
            said = CellReport(
                0,
                key,
                epoch,
                0,
                0,
                0,
                0,
                0,
                need_milli=1000,
                ask=0,
                asked=1,
                demand_milli=0,
                window_demand=0,
                reset_us=0,
            )
            batch = Batch("reader.0", "reader", shard, self._reads, "", 10_000_000, 10**11, False, (limit,), (said,))
            await super().exchange(batch)
        return await super().read_keys(shard, questions)


class Renumbering(MemoryHub):
    """Takes every batch for a new one, as if messages came once and in order."""

    async def exchange(self, batch: Batch) -> Answer:
        self._numbers = getattr(self, "_numbers", count(1))
        return await super().exchange(batch._replace(sequence=next(self._numbers)))


class Ungrateful(MemoryHub):
    """Forgets what a node has used when it leaves."""

    async def exchange(self, batch: Batch) -> Answer:
        if batch.leaving:
            batch = _cells(batch, lambda cell: cell._replace(current=0, previous=0))
        return await super().exchange(batch)


class Promising(MemoryHub):
    """Grants to nodes that ask, and does not count the grants."""

    async def exchange(self, batch: Batch) -> Answer:
        answer = await super().exchange(batch)
        for cell in (cell for shard in self._shards for cell in shard.cells.values()):
            entry = cell.entries.get(batch.node)
            if entry is not None and any(report.waiting for report in batch.cells):
                cell.count(entry, -1)
                entry.allowance = entry.vouchers = 0
                cell.count(entry)
        return answer


class Whole(MemoryHub):
    """Grants whole requests only: parts that fade on several nodes are of no use to it."""

    async def exchange(self, batch: Batch) -> Answer:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Entry, "floats", lambda *_: False)
            return await super().exchange(batch)


class Lavish(MemoryHub):
    """Grants as much of long windows as of short ones: far more than a vanished node should keep."""

    async def exchange(self, batch: Batch) -> Answer:
        windows_us = [limit.window_us * max(1, limit.capacity // limit.quota) for limit in batch.limits]
        return await super().exchange(batch._replace(lease_us=max([batch.lease_us, *windows_us])))


class Anonymous(MemoryHub):
    """Keeps the name of its data, even if they are lost."""

    async def exchange(self, batch: Batch) -> Answer:
        answer = await super().exchange(batch._replace(generation=""))
        return answer._replace(generation="the same")


class Restless(MemoryHub):
    """Gives its data another name in every answer."""

    async def exchange(self, batch: Batch) -> Answer:
        self._numbers = getattr(self, "_numbers", count(1))
        answer = await super().exchange(batch._replace(generation=""))
        return answer._replace(generation=f"data {next(self._numbers)}")


class Curt(MemoryHub):
    """Reports only refusals to nodes, and nothing else."""

    async def exchange(self, batch: Batch) -> Answer:
        answer = await super().exchange(batch)
        return answer if answer.status is Status.MERGED else answer._replace(generation="")


class Unlearned(MemoryHub):
    """Grants allowances again that it had granted before its data were lost."""

    async def exchange(self, batch: Batch) -> Answer:
        if batch.generation not in ("", self._shards[0].generation):
            batch = _cells(batch, lambda cell: cell._replace(allowance=0, base=0, overdraft=0))
        return await super().exchange(batch._replace(generation=""))


class Faithful(MemoryHub):
    """Works in the first event loop that used it, and in no other."""

    async def exchange(self, batch: Batch) -> Answer:
        here = asyncio.get_running_loop()
        if getattr(self, "_home", here) is not here:
            raise RuntimeError("attached to a different loop")
        self._home = here
        return await super().exchange(batch)


class Confused(MemoryHub):
    """Leaves the answer to a cancelled exchange in the line, where the next exchange reads it."""

    async def exchange(self, batch: Batch) -> Answer:
        self._unread: list[Answer] = getattr(self, "_unread", [])
        self._unread.append(await super().exchange(batch))
        await asyncio.sleep(0)
        return self._unread.pop(0)


class Single(MemoryHub):
    """Can make only one exchange at a time."""

    async def exchange(self, batch: Batch) -> Answer:
        if getattr(self, "_busy", False):
            raise RuntimeError("another exchange is under way")
        self._busy = True
        await asyncio.sleep(0)
        self._busy = False
        return await super().exchange(batch)


class OnceClosed(MemoryHub):
    """Can be closed only for good."""

    _closed = False

    async def exchange(self, batch: Batch) -> Answer:
        if self._closed:
            raise RuntimeError("the hub is closed")
        return await super().exchange(batch)

    async def close(self) -> None:
        if self._closed:
            raise RuntimeError("the hub is closed already")
        self._closed = True


class Frank(MemoryHub):
    """Is not there, and raises its client's own errors."""

    async def exchange(self, batch: Batch) -> Answer:
        raise ConnectionRefusedError(111, "Connection refused")

    async def totals(self) -> dict[str, Totals]:
        raise ConnectionRefusedError(111, "Connection refused")


class Requeuing(RedisHub):
    """Sends differences, and sends them again if there was no answer, as is usual."""

    def __init__(self, url: str, settings: HubSettings) -> None:
        super().__init__(url, settings)
        self._counted = 0

    async def exchange(self, batch: Batch) -> Answer:
        difference = sum(limit.charged for limit in batch.limits) - self._counted
        if batch.limits:
            await self._call("INCRBY", "counted", difference)
            self._counted += difference
        return await super().exchange(batch)

    async def totals(self) -> dict[str, Totals]:
        counted = await self._call("GET", "counted")
        assert isinstance(counted, bytes)
        return {"login": Totals(int(counted), 0)}


class Dropping(Requeuing):
    """Sends each difference once, even if it is lost, as is done to avoid counting twice."""

    async def exchange(self, batch: Batch) -> Answer:
        counted = self._counted
        try:
            return await super().exchange(batch)
        except HubUnavailable:
            if batch.limits and self._counted == counted:
                self._counted = sum(limit.charged for limit in batch.limits)
            raise
