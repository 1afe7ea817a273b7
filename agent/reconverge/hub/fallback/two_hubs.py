"""Combines a hub with a fallback for the time in which the hub does not answer; each keeps its own ledger."""

# Theory of operation.
#
# The problem. A node that cannot reach its hub refuses known keys when its lease is over. A second hub keeps it going,
# but knows nothing of what the first one has granted, and nodes may exchange with either.
#
# Why the naive ways fail. Copying the ledger from one hub to the other needs a connection between them, which is what
# may be cut. Moving all nodes at once needs them to agree, and half of them may be cut off from the other half. Half of
# the capacity for each hub costs half of every limit on all good days. A second hub at which nodes only use what they
# bring along is of no use after the lease.
#
# How it works. For a node, moving to the other hub is the same as finding that its hub has lost its data, which every
# node and hub can handle anyway:
#
#     exchange with A   A   A   x   x   x | B   B   B   B   B   B   B   B | A   A
#     questions to A                      |         ?x      ?ok     ?ok   |
#                        3 failures in a row          every 5 s or so, 2 answers in a row
#
# The data of the other hub have another generation (name), so the node reports everything again. A node reports sums,
# not increments; each hub's ledger holds them once, and nothing is ever added up across hubs. Allowances are bounded
# within each ledger, so all allowances together sum to twice the capacity at most: that is the price, as in
# `docs/operate/redis.md`.
#
# What it takes for each ledger to stay true:
#
# - A node has a name with each hub. While its lease at a hub is running, it comes back under its old name, so that its
#   counts there are replaced; later it comes back under a new name, as after any lease.
# - A node does not use an account again that was silent for 12 hours: the hub may have closed it, and would add the
#   same numbers once more.
# - After a move the node asks for no allowances on strict limits until every lease is over that the other hub may have
#   granted. So it is rare that nodes which all move at once exceed a strict limit; it is no promise.
# - `Cell.answer` of the merge rule grants a node no more than there is room for, however large the allowances that it
#   reports.
#
# A question to the primary is a real exchange without keys, so a hub that answers PING but cannot write, or refuses
# scripts, is not taken for healthy. A node moves each shard by itself, by the failures of that shard's exchanges.

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence
from random import Random
from secrets import token_hex
from typing import Final

from reconverge.clock import Clock
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.checking.answers import OddCell, check_answer, first_odd_cell
from reconverge.hub.checking.probe import trial_batch
from reconverge.hub.fallback.identity import HubSession
from reconverge.hub.fallback.selector import HubChoice
from reconverge.hub.port import ContractHints, ContractStore, Hub, IndexHints, SettingsStore, Working
from reconverge.hub.report import Answer, Batch, Status, Totals
from reconverge.runtime.owner import Owned

logger = logging.getLogger("reconverge")

PROBE_LEASE_US: Final = 1_000_000
"""The lease, in microseconds, in the batch by which a node asks whether the primary answers. It is short, as the node
holds no allowances there."""


class TwoHubs:
    """A hub made of two: exchanges with `primary`, or with `fallback` while the primary fails.

    Each of the two keeps the promises of `Hub`. Together they promise less: nodes that exchange with different hubs do
    not know of each other, so that up to twice the bound may be admitted in the meantime.
    """

    def __init__(
        self,
        primary: Hub,
        fallback: Hub,
        *,
        clock: Clock,
        timeout_s: float,
        name: str,
        random: Random,
        odd_cell: OddCell = first_odd_cell,
    ) -> None:
        if primary.shards != fallback.shards:
            raise InvalidSetting(
                "fallback",
                name,
                f"divides keys into {fallback.shards} shards, the hub into {primary.shards}; give both the same number",
            )
        self._primary = primary
        self._fallback = fallback
        self._working = tuple(hub for hub in (primary, fallback) if isinstance(hub, Working))
        """Those of the two hubs that are `Working`; found only once, because the check is slow."""
        self._clock = clock
        self._timeout_s = timeout_s
        self._odd_cell = odd_cell
        self._shards = [_ShardPlace(random) for _ in range(primary.shards)]
        self._prober = token_hex(8)
        self._probes: Owned[dict[int, asyncio.Task[None]]] = Owned(dict)

    @property
    def shards(self) -> int:
        return self._primary.shards

    @property
    def at_work(self) -> bool:
        """Returns whether the primary or the fallback has tasks of its own to run between exchanges."""
        return any(hub.at_work for hub in self._working)

    @property
    def with_primary(self) -> bool:
        """Returns whether this node exchanges with the primary about all shards."""
        return all(shard.choice.primary for shard in self._shards)

    @property
    def _away(self) -> bool:
        return not any(shard.choice.primary for shard in self._shards)

    @property
    def both(self) -> tuple[Hub, Hub]:
        """Returns the primary and the fallback."""
        return self._primary, self._fallback

    def hub_of(self, shard: int) -> Hub:
        """Returns the hub with which this node exchanges the keys of a shard."""
        return self._primary if self._shards[shard].choice.primary else self._fallback

    async def exchange(self, batch: Batch) -> Answer:
        shard = self._shards[batch.shard]
        choice = shard.choice
        sent_ns = self._clock.monotonic_ns()
        if choice.probe_due(sent_ns):
            self._begin_probe(batch.shard)
        primary = choice.primary
        known = shard.known[primary]
        if shard.last_known is not known:
            if shard.last_known is not None:
                known.begin_visit(batch, now_ns=sent_ns)
            shard.last_known = known
        said = known.for_this_hub(batch, now_ns=sent_ns)
        answered = False
        try:
            answer = await (self._primary if primary else self._fallback).exchange(said)
            check_answer(said, answer, self._odd_cell)
            answered = True
        finally:  # a caller that has waited for too long cancels, and that is a failure as well
            if choice.primary is primary and choice.exchanged(answered=answered, now_ns=self._clock.monotonic_ns()):
                logger.warning("reconverge: the primary hub does not answer; this node uses the fallback until it does")
        if answer.status is Status.MERGED:
            known.heard(batch, sent_ns=sent_ns)
        return answer

    async def totals(self) -> dict[str, Totals]:
        """Returns the totals at the primary; the totals at the fallback if the node uses it for every shard.

        Never returns the sum of both, in which some charges would count twice.
        """
        return await (self._fallback if self._away else self._primary).totals()

    async def close(self) -> None:
        probes = self._probes.take() or {}
        for probe in probes.values():
            probe.cancel()
        with contextlib.suppress(HubUnavailable):
            await asyncio.gather(*probes.values(), return_exceptions=True)
        try:
            await self._primary.close()
        finally:
            await self._fallback.close()

    def _begin_probe(self, shard: int) -> None:
        probes = self._probes.get()
        if shard not in probes or probes[shard].done():
            probes[shard] = asyncio.get_running_loop().create_task(self._probe(shard), name="reconverge-probe")

    async def _probe(self, index: int) -> None:
        """Sends an empty batch to the primary to find out whether it answers again."""
        shard = self._shards[index]
        shard.asked += 1
        question = trial_batch(f"{self._prober}.{os.getpid()}", shard.asked)
        answered = False
        with contextlib.suppress(HubUnavailable, TimeoutError):
            question = question._replace(shard=index, lease_us=PROBE_LEASE_US)
            check_answer(question, await asyncio.wait_for(self._primary.exchange(question), self._timeout_s))
            answered = True
        if shard.choice.probed(answered=answered, now_ns=self._clock.monotonic_ns()):
            logger.warning("reconverge: the primary hub answers again; this node leaves the fallback")

    def __repr__(self) -> str:
        return f"TwoHubs({self._primary!r}, fallback={self._fallback!r})"


class TwoHubsWithSettings(TwoHubs):
    """A `TwoHubs` whose settings are published at the primary only."""

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        await self._store().post(payload, keep_s=keep_s)

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Returns the settings at the primary; None if none are published.

        Raises HubUnavailable while the node uses the fallback; it then keeps the settings that it has read before.
        """
        if self._away:
            raise HubUnavailable(
                "fallback",
                "settings are read from the primary hub, which does not answer now; try again when it does",
                applied=False,
            )
        return await self._store().read(bytes_max=bytes_max)

    def _store(self) -> SettingsStore:
        assert isinstance(self._primary, SettingsStore)
        return self._primary


class TwoHubsWithContracts(TwoHubsWithSettings):
    """A `TwoHubs` whose settings and contracts are stored at the primary only."""

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        """Returns the index of the contracts at the primary; None if the primary has none.

        Raises HubUnavailable while the node uses the fallback; it then keeps the contracts that it has read before.
        """
        return await self._contracts().read_index(bytes_max=bytes_max)

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        return await self._contracts().swap_index(payload, over=over, bytes_max=bytes_max, keep_s=keep_s)

    async def put_page(self, digest: str, payload: bytes, *, keep_s: float) -> None:
        await self._contracts().put_page(digest, payload, keep_s=keep_s)

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        return await self._contracts().get_page(digest, bytes_max=bytes_max)

    async def keep_pages(self, digests: Sequence[str], *, keep_s: float) -> list[str]:
        return await self._contracts().keep_pages(digests, keep_s=keep_s)

    def hints(self) -> IndexHints | None:
        """Returns the primary's listener for hints of changed contracts; None if the primary cannot push hints."""
        return self._primary.hints() if isinstance(self._primary, ContractHints) else None

    def _contracts(self) -> ContractStore:
        """Returns the primary as a store of contracts. Raises HubUnavailable while the node uses the fallback."""
        if self._away:
            raise HubUnavailable(
                "fallback",
                "contracts are at the primary hub, which does not answer now; try again when it does",
                applied=False,
            )
        assert isinstance(self._primary, ContractStore)
        return self._primary


def two_hubs(
    primary: Hub,
    fallback: Hub,
    *,
    clock: Clock,
    timeout_s: float,
    name: str,
    random: Random | None = None,
    odd_cell: OddCell = first_odd_cell,
) -> TwoHubs:
    """Returns `primary` and `fallback` combined into one hub. Raises InvalidSetting.

    `name` is the fallback's name in messages; `odd_cell` finds an implausible answer of a hub.
    """
    kind = TwoHubsWithSettings if isinstance(primary, SettingsStore) else TwoHubs
    if isinstance(primary, SettingsStore) and isinstance(primary, ContractStore):
        kind = TwoHubsWithContracts
    return kind(
        primary,
        fallback,
        clock=clock,
        timeout_s=timeout_s,
        name=name,
        random=random or Random(),
        odd_cell=odd_cell,
    )


class _ShardPlace:
    """One shard's choice of hub on this node, and the node's session at each of the two hubs."""

    def __init__(self, random: Random) -> None:
        self.choice = HubChoice(random)
        self.known = {True: HubSession(), False: HubSession()}
        """The session at the primary (True), and the session at the fallback (False)."""
        self.last_known: HubSession | None = None
        self.asked = 0
