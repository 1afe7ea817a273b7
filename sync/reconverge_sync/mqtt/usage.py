"""The usage ledger on an MQTT broker: each shard's leader adds the usage up, by the rule of `merge/usage.py`.

The usage is in the memory of one process: a leader that stops hands it over, and a leader that is killed loses it. Then
the live nodes report all that they keep to the next leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.usage import (
    ExportLease,
    ExportMarks,
    NodeLoad,
    Period,
    Recorded,
    UsageBatch,
    UsageEvent,
    UsageKey,
    UsageRow,
)
from reconverge_sync.mqtt.calling.calls import (
    Call,
    read_events,
    read_lease,
    read_load,
    read_marks,
    read_recorded,
    read_rows,
    sent_batch,
    sent_retracted,
)
from reconverge_sync.mqtt.messages import MalformedMessage

SECOND_US: Final = 1_000_000
_T = TypeVar("_T")


class Ask(Protocol):
    """A function that sends a call to the leader of a shard and returns its reply. Raises HubUnavailable."""

    def __call__(self, shard: int, call: Call, *, takes_part: bool = False) -> Awaitable[Any]:
        """Sends a call to a shard's leader, and returns its reply; `takes_part` makes this member a candidate."""
        ...


class MqttUsage:
    """A usage ledger whose methods send calls to the leaders of its shards.

    A member that records usage becomes a candidate for leader; a member that only reads or exports usage does not.
    """

    def __init__(self, ask: Ask, *, shards: int) -> None:
        self._ask = ask
        self._shards = shards

    @property
    def shards(self) -> int:
        return self._shards

    async def record(self, batch: UsageBatch) -> Recorded:
        keys: dict[UsageKey, list[int]] = {}
        for place, row in enumerate(batch.rows):
            keys.setdefault(row.key, []).append(place)
        places = [place for together in keys.values() for place in together]  # in the order of `sent_batch`
        reply = await self._ask(batch.shard, ["record", *sent_batch(batch)], takes_part=True)
        recorded = understood(reply, read_recorded)
        refused = understood(recorded.refused, lambda sent: tuple(sorted(map(places.__getitem__, sent))))
        return recorded._replace(refused=refused)

    async def totals(self, period: Period, shard: int, page: int) -> Sequence[UsageRow]:
        """Returns the rows of one page (part) of a period's usage.

        A long page comes in several parts, between which rows may change.
        """
        rows: list[UsageRow] = []
        offset = 0
        while offset >= 0:
            reply = await self._ask(shard, ["totals", *period, page, offset])
            part, offset = understood(reply, partial(read_rows, period, offset))
            rows += part
        return rows

    async def loads(self) -> Sequence[NodeLoad]:
        reply = await self._ask(0, ["loads"])
        return understood(reply, lambda sent: [read_load(each) for each in sent])

    async def lead_export(self, kind: str, exporter: str, keep_s: float) -> ExportLease:
        reply = await self._ask(0, ["lead_export", kind, exporter, round(keep_s * SECOND_US)])
        return understood(reply, read_lease)

    async def marks(self, kind: str, shard: int) -> ExportMarks:
        return understood(await self._ask(shard, ["marks", kind]), read_marks)

    async def close_period(self, period: Period, shard: int) -> bool:
        return await self._ask(shard, ["close_period", *period]) is True

    async def issue(self, period: Period, shard: int, page: int) -> Sequence[UsageEvent]:
        reply = await self._ask(shard, ["issue", *period, page])
        return understood(reply, lambda sent: read_events(period, sent))

    async def confirm(self, events: Sequence[UsageEvent], shard: int, page: int) -> None:
        if events:
            sent = [[*event.key, event.number] for event in events]
            await self._ask(shard, ["confirm", *events[0].period, page, sent])

    async def finish(self, period: Period, shard: int, late_mark: int | None) -> None:
        await self._ask(shard, ["finish", *period, late_mark])

    async def retract(self, account: str, shard: int, rows: Sequence[tuple[Period, UsageKey]]) -> None:
        """Removes an account's counts from `rows`, as its node has erased the identity that these rows are about."""
        await self._ask(shard, ["retract", *sent_retracted(account, rows)], takes_part=True)


def understood(reply: Any, read: Callable[[Any], _T]) -> _T:
    """Returns the result of `read` for a leader's reply. Raises HubUnavailable if the reply is invalid."""
    try:
        return read(reply)
    except (MalformedMessage, TypeError, LookupError):
        problem = f"the leader's reply about usage, of type {type(reply).__name__}, cannot be read; {ONE_VERSION}"
        raise HubUnavailable("protocol", problem) from None
