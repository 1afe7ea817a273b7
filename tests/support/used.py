"""Records usage at a hub by hand, also in past periods."""

from __future__ import annotations

from itertools import count

from reconverge.hub.usage import Counts, Period, Retention, UsageBatch, UsageKey, UsageRow, shard_of
from reconverge_sync.memory import MemoryHub

_accounts = count()


async def recorded(
    hub: MemoryHub, period: Period, used: tuple[str, str], cost: int, requests: int, refused: int = 0
) -> None:
    """Records a customer's use of a limit in a period, by an account of its own."""
    identity, limit = used
    shard = shard_of(identity, hub.usage.shards)
    rows = [UsageRow(period, UsageKey(identity, limit, "/"), Counts(cost, requests, refused))]
    batch = UsageBatch(f"account-{next(_accounts)}", shard, 1, 0, rows, Retention())
    assert (await hub.usage.record(batch)).merged
