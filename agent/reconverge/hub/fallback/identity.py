"""A node's session with one of two hubs: its name and lease there, and the counts that the hub has confirmed.

Does no I/O. While the node exchanges with the other hub, its lease at this hub may end, and this hub may close its
account (the name of its totals). Then the node never uses that name or that account again at this hub.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.hub.report import Batch, CellReport, LimitReport

ACCOUNT_KEPT_NS: Final = 12 * 3600 * SECOND_NS
"""After this time without an exchange with a hub, the node uses another account there. It is half of the time after
which a hub closes a silent account."""


class HubSession:
    """The state of one shard of this node at one of two hubs: its name, account, lease and confirmed charges."""

    def __init__(self) -> None:
        self._node = self._account = ""
        self._visit = self._edition = 0
        self._lease_until_ns = self._heard_ns = 0
        self._confirmed: dict[str, tuple[int, int]] = {}
        """The charges and refunds that the hub has confirmed, by limit."""
        self._before: dict[str, tuple[int, int]] = {}
        """The part of `_confirmed` that was reported under former accounts, which the hub may have closed."""
        self._asks_from_ns = 0

    def begin_visit(self, batch: Batch, *, now_ns: int) -> None:
        """Called with the node's first batch at this hub after a time at the other hub.

        The node keeps its name if its lease here is still running, and takes a new name if not. On strict limits it
        asks for no allowances until every lease has ended that the other hub may have granted to any node.
        """
        if batch.node == self._node and now_ns >= self._lease_until_ns:
            self._visit += 1
        if batch.account == self._account and self._confirmed and now_ns - self._heard_ns > ACCOUNT_KEPT_NS:
            self._edition += 1
            self._before = dict(self._confirmed)
        self._asks_from_ns = now_ns + batch.lease_us * MICROSECOND_NS

    def for_this_hub(self, batch: Batch, *, now_ns: int) -> Batch:
        """Returns `batch` with the name and the account that the node has at this hub.

        For one lease after the node has come from the other hub, the batch asks for no allowances on strict limits.
        """
        if batch.node != self._node:
            self._node, self._visit, self._lease_until_ns = batch.node, 0, 0
        if batch.account != self._account:
            self._account, self._edition, self._confirmed, self._before = batch.account, 0, {}, {}
        # Other nodes may still use allowances of the former hub; a request for allowances here would have them granted
        # once more.
        if now_ns < self._asks_from_ns and any(limit.overshoot_milli == 0 for limit in batch.limits):
            batch = batch._replace(cells=tuple(_modest(batch.limits, batch.cells)))
        if self._visit:
            batch = batch._replace(node=f"{batch.node}~{self._visit}")
        if self._edition:
            limits = tuple(self._since_then(limit) for limit in batch.limits)
            batch = batch._replace(account=f"{batch.account}~{self._edition}", limits=limits)
        return batch

    def heard(self, batch: Batch, *, sent_ns: int) -> None:
        """Called when this hub has merged `batch`, which `for_this_hub` returned and which was sent at `sent_ns`."""
        self._heard_ns = sent_ns
        self._lease_until_ns = sent_ns + batch.lease_us * MICROSECOND_NS
        for limit in batch.limits:
            self._confirmed[limit.name] = limit.charged, limit.refunded

    def _since_then(self, limit: LimitReport) -> LimitReport:
        charged, refunded = self._before.get(limit.name, (0, 0))
        return limit._replace(charged=max(0, limit.charged - charged), refunded=max(0, limit.refunded - refunded))


def _modest(limits: Sequence[LimitReport], cells: Sequence[CellReport]) -> Iterator[CellReport]:
    for cell in cells:
        strict = limits[cell.limit].overshoot_milli == 0
        yield cell._replace(need_milli=0, ask=0, asked=0) if strict else cell
