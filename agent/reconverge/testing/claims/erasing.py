"""Promises of a hub that can erase an identity: nothing names the identity any more, and no allowance is granted twice.

The claims are skipped for a hub that is no `Eraser`.
"""

from __future__ import annotations

from unittest import SkipTest

from reconverge.errors import HubUnavailable
from reconverge.hub.erasing import KEPT_S, ORDERS_MAX, Erased, erasure_mark, names_of
from reconverge.hub.port import AddressLedger, Eraser, UsageEraser, UsageHub, UsageLedger
from reconverge.hub.reading import READ_MAX, KeyQuestion
from reconverge.hub.report import FORGOTTEN, LimitReport
from reconverge.hub.usage import (
    DAY,
    PAGES,
    AddressReport,
    Counts,
    Period,
    Retention,
    UsageBatch,
    UsageKey,
    UsageRow,
    shard_of,
)
from reconverge.testing.claims.scenes.scene import LIMIT, QUOTA, SECOND_US, WINDOW_S, ReportedCell, Scene, Voice, limit
from reconverge.testing.claims.scenes.trial import Trial, claim

BY_USER = limit("calls/customer.user")
HOUR_US = 3600 * SECOND_US
ADA_CALLS = UsageKey("ada", "calls", "")
BOB_CALLS = UsageKey("bob", "calls", "")
SECRET = b"of the fleet"


def operator(trial: Trial, scene: Scene) -> Eraser:
    """Returns the hub as an operator's command opens it. Skips the test if no identity can be erased from it."""
    hub = scene.keep(trial.make_operator(scene.hub))
    if not isinstance(hub, Eraser):
        raise SkipTest("no identity can be erased from this hub, as it is no reconverge.hub.Eraser")
    return hub


async def erases(hub: Eraser, identity: str = "ada") -> tuple[int, int, int]:
    """Erases an identity from the whole hub.

    Returns the numbers of erased keys, of keys that stay, and of erased usage rows.
    """
    cells = kept = rows = 0
    for shard in range(hub.shards):
        step = Erased(-1, 0, 0, 0)
        while step.cursor != 0:
            step = await hub.erase(shard, identity, names_of(identity), cursor=max(0, step.cursor))
            cells, kept, rows = cells + step.cells, kept + step.kept, rows + step.rows
    return cells, kept, rows


async def forgets(voice: Voice, key: str = "ada", *, of: LimitReport = LIMIT, current: int = 0) -> int:
    """Lets a node report that it forgets a key on which it holds no allowance.

    Returns how many nodes have the key, as the hub answers.
    """
    said = voice.cell(key, of=of, current=current, allowance=0)
    said = ReportedCell(
        said.limit, said.report._replace(asked=FORGOTTEN, base=0, overdraft=0, need_milli=0, demand_milli=0)
    )
    (answer,) = (await voice.exchanges(voice.batch(said))).cells
    return answer.nodes


def ledger(scene: Scene) -> tuple[UsageLedger, UsageEraser]:
    """Returns the same hub twice: as a `UsageLedger` and as a `UsageEraser`. Skips the test if it is not both."""
    hub = scene.another_hub()
    usage = hub.usage if isinstance(hub, UsageHub) else None
    eraser: object = usage
    if usage is None or not isinstance(eraser, UsageEraser):
        raise SkipTest("no usage can be erased from this hub, as its ledger is no UsageEraser")
    return usage, eraser


def today(scene: Scene) -> Period:
    """Returns the present day by the hub's clock: a hub counts no usage of a day that is long over."""
    return Period(DAY, scene.hub_us() // (24 * HOUR_US))


async def tells(hub: UsageLedger, day: Period, account: str, sequence: int, *said: tuple[UsageKey, int]) -> None:
    """Makes an account report its counts of a day to `hub`; `said` has keys of one shard, each with its cost."""
    rows = [UsageRow(day, key, Counts(cost, cost, 0)) for key, cost in said]
    shard = shard_of(said[0][0].identity, hub.shards)
    recorded = await hub.record(UsageBatch(account, shard, sequence, sequence - 1, rows, Retention()))

    assert recorded.merged


async def used(hub: UsageLedger, day: Period) -> dict[UsageKey, int]:
    """Returns the cost that the hub has counted in a day, by key."""
    pages = [await hub.totals(day, shard, page) for shard in range(hub.shards) for page in range(PAGES)]
    return {row.key: row.counts.cost for page in pages for row in page}


class ErasingClaims(Trial):
    """Tests of the promises of a hub about the erasure of an identity."""

    @claim
    async def test_what_no_node_has_any_more_is_erased(self, scene: Scene) -> None:
        """A key that its node has forgotten is erased with its use, and begins anew; other keys stay."""
        hub, ada = operator(self, scene), scene.voice()
        await ada.reports(current=30)
        await ada.reports("bob", current=12)
        assert FORGOTTEN == await forgets(ada, current=30)

        assert (1, 0, 0) == await erases(hub)

        assert (0, 0, 0) == await erases(hub)
        assert 0 == (await scene.voice().reports()).current
        assert 12 == (await scene.voice().reports("bob")).current

    @claim
    async def test_a_key_stays_as_long_as_a_live_node_has_it(self, scene: Scene) -> None:
        """A key stays while a live node has it: its allowance may be in use, and would be granted once more."""
        hub, ada, bob = operator(self, scene), scene.voice(), scene.voice()
        await ada.reports(need=QUOTA)
        allowance = (await ada.reports(current=5, allowance=70)).allowance
        await bob.reports(current=3)
        await forgets(bob, current=3)

        assert (0, 1, 0) == await erases(hub)

        assert (await bob.reports(need=QUOTA)).allowance <= QUOTA - allowance

    @claim
    async def test_the_key_of_a_node_that_is_gone_is_erased_when_its_lease_is_over(self, scene: Scene) -> None:
        """A silent node's key is erased when the lease is over, no sooner: the node may only be cut off."""
        lease_us = 1000 * SECOND_US
        hub, ada = operator(self, scene), scene.voice(lease_us=lease_us)
        await ada.reports(current=30)
        scene.pass_time(lease_us / SECOND_US)
        assert (0, 1, 0) == await erases(hub)

        scene.pass_time(1 / SECOND_US)

        assert (1, 0, 0) == await erases(hub)

    @claim
    async def test_the_key_of_a_node_that_has_left_is_erased_at_once(self, scene: Scene) -> None:
        """If only a node that has left has counted an identity, it is erased at once, without waiting for that node."""
        hub, ada = operator(self, scene), scene.voice()
        await ada.reports(current=30)
        await ada.leaves(ada.cell(current=30))

        assert (1, 0, 0) == await erases(hub)

    @claim
    async def test_keys_with_several_facts_are_erased_by_each_of_them(self, scene: Scene) -> None:
        """A key of several parts is erased if any part is the identity; a key that only begins with the name stays."""
        hub, node = operator(self, scene), scene.voice()
        keys = [("ada|eve", BY_USER), ("globex|ada", BY_USER), ("adam|eve", BY_USER), ("ada%7C|eve", LIMIT)]
        for key, of in keys:
            await node.reports(key, of=of, current=7)
            await forgets(node, key, of=of, current=7)

        assert (2, 0, 0) == await erases(hub)

        left = [(await scene.voice().reports(key, of=of)).current for key, of in keys]
        assert [0, 0, 7, 7] == left

    @claim
    async def test_nodes_drop_the_keys_that_they_had(self, scene: Scene) -> None:
        """A node can drop keys by name without a search. Keys that other nodes have are counted, and stay."""
        hub, ada, bob = operator(self, scene), scene.voice(), scene.voice()
        questions = [KeyQuestion(LIMIT, key) for key in ("ada", "bob", "never seen")]
        for key in ("ada", "bob"):
            await ada.reports(key, current=30)
            await forgets(ada, key, current=30)
        await bob.reports("bob", current=12)

        assert 1 == await hub.drop_keys(0, questions)

        assert 0 == (await scene.voice().reports()).current
        assert 42 == (await scene.voice().reports("bob")).current

    @claim
    async def test_too_many_keys_are_not_dropped_at_a_time(self, scene: Scene) -> None:
        """The hub refuses to drop more than READ_MAX keys at a time, so that no other node has to wait long."""
        hub = operator(self, scene)
        too_many = [KeyQuestion(LIMIT, str(number)) for number in range(READ_MAX + 1)]
        try:
            await hub.drop_keys(0, too_many)
        except HubUnavailable as error:
            problem = error
        else:
            raise AssertionError(
                f"{len(too_many)} keys were dropped, more than READ_MAX allows; raise HubUnavailable instead"
            )

        assert problem.applied is False

    @claim
    async def test_all_nodes_read_an_order(self, scene: Scene) -> None:
        """Every node can read the orders to erase identities; each order has a later moment than all before."""
        hub = operator(self, scene)
        marks = [erasure_mark(name, "shop") for name in ("ada", "bob")]
        moments = [await hub.order_erasure([mark]) for mark in (*marks, marks[0])]
        assert sorted({*moments}) == moments

        read = await operator(self, scene).erasures(0)

        assert [(moments[1], marks[1]), (moments[2], marks[0])] == list(read.orders)
        assert [(moments[2], marks[0])] == list((await hub.erasures(moments[1])).orders)
        assert [] == list((await hub.erasures(moments[2])).orders)
        assert abs(scene.hub_us() - read.hub_us) < 60 * SECOND_US

    @claim
    async def test_an_order_ends(self, scene: Scene) -> None:
        """An order to erase an identity is deleted after its time, when another order is given."""
        hub = operator(self, scene)
        await hub.order_erasure(["one"])
        scene.pass_time(KEPT_S + 1)

        moment = await hub.order_erasure(["other"])

        assert [(moment, "other")] == list((await hub.erasures(0)).orders)

    @claim
    async def test_there_are_so_many_orders_and_no_more(self, scene: Scene) -> None:
        """Beyond ORDERS_MAX orders to erase identities, the hub deletes the oldest orders."""
        hub = operator(self, scene)
        for first in range(0, ORDERS_MAX + 2, 1001):
            await hub.order_erasure([str(number) for number in range(first, min(first + 1001, ORDERS_MAX + 2))])

        orders = (await hub.erasures(0)).orders

        assert (ORDERS_MAX, "2", str(ORDERS_MAX + 1)) == (len(orders), orders[0].mark, orders[-1].mark)

    @claim
    async def test_a_loss_of_data_takes_the_orders_along(self, scene: Scene) -> None:
        """When the hub loses its data, it loses the orders to erase identities, too."""
        hub = operator(self, scene)
        await hub.order_erasure(["one"])
        await self.lose_data(scene.hub)

        assert [] == list((await hub.erasures(0)).orders)

    @claim
    async def test_usage_is_erased_with_its_events(self, scene: Scene) -> None:
        """Erasure deletes an identity's totals, accounts' reports and unconfirmed events; other identities' stay."""
        hub, (usage, _), day = operator(self, scene), ledger(scene), today(scene)
        await tells(usage, day, "one", 1, (ADA_CALLS, 5))
        await tells(usage, day, "two", 1, (BOB_CALLS, 7))
        shard = shard_of("ada", usage.shards)
        for page in range(PAGES):
            await usage.issue(day, shard, page)

        assert (0, 0, 4) == await erases(hub)

        assert {BOB_CALLS: 7} == await used(usage, day)
        issued = [event for page in range(PAGES) for event in await usage.issue(day, shard, page)]
        assert ADA_CALLS not in [event.key for event in issued]
        assert (0, 0, 0) == await erases(hub)

    @claim
    async def test_the_addresses_of_an_identity_are_erased(self, scene: Scene) -> None:
        """Erasure deletes the identity's address sketch of every kept hour, and makes room for another identity."""
        hub, (usage, _) = operator(self, scene), ledger(scene)
        if not isinstance(usage, AddressLedger):
            raise SkipTest("this hub keeps no sketches of addresses, as its ledger is no AddressLedger")
        shard, sketch, now = shard_of("ada", usage.shards), b"\x07\x03", scene.hub_us() // HOUR_US
        for hour in (now - 1, now):
            await usage.note_addresses(AddressReport(hour, shard, SECRET, {"ada": sketch, "adam": sketch}))
        await erases(hub)

        for hour in (now - 1, now):
            assert ["adam"] == list(await usage.address_sketches(hour, shard, SECRET))

    @claim
    async def test_an_account_takes_back_what_it_has_reported(self, scene: Scene) -> None:
        """An account can retract its counts of usage. Other accounts' counts stay; a row without counts is gone."""
        (hub, eraser), day = ledger(scene), today(scene)
        shard = shard_of("ada", hub.shards)
        other = UsageKey("ada", "other", "")
        await tells(hub, day, "one", 1, (ADA_CALLS, 5), (other, 2))
        await tells(hub, day, "two", 1, (ADA_CALLS, 8))

        for _ in range(2):
            await eraser.retract("one", shard, [(day, key) for key in (ADA_CALLS, other, UsageKey("ada", "x", ""))])

        assert {ADA_CALLS: 8} == await used(hub, day)
        await tells(hub, day, "one", 2, (ADA_CALLS, 1))
        assert {ADA_CALLS: 9} == await used(hub, day)

    @claim
    async def test_erasing_counts_from_the_moment_of_erasure(self, scene: Scene) -> None:
        """A key that is used again after its erasure has windows as usual, and nothing of its former use."""
        hub, ada = operator(self, scene), scene.voice()
        await ada.reports(current=30)
        await forgets(ada, current=30)
        await erases(hub)
        await ada.reports(current=4)
        scene.pass_time(WINDOW_S)

        assert (0, 0) == (await scene.voice().reports())[1:3]
