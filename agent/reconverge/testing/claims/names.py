"""Promises of a hub about nodes that leave, fall silent or take a new name, and about the use of such nodes."""

from __future__ import annotations

from reconverge.hub.report import Status, Totals
from reconverge.testing.claims.scenes.scene import INTERVAL_S, LIMIT, QUOTA, SECOND_US, Scene, limit
from reconverge.testing.claims.scenes.trial import Trial, claim

LEASE_S = 60.0
SHORT_LEASE_US = int(LEASE_S) * SECOND_US


class NameClaims(Trial):
    """Tests of the promises of a hub about nodes that are gone."""

    @claim
    async def test_what_a_node_has_used_stays_used_when_it_leaves(self, scene: Scene) -> None:
        """The use of a node counts after it has left: otherwise a restart would reset a limit."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(need=30)
        await ada.leaves(ada.cell(current=30))

        answer = await bob.reports(need=QUOTA)

        assert 30 == answer.current
        assert QUOTA - 30 == answer.allowance

    @claim
    async def test_what_a_node_has_not_used_is_free_when_it_leaves(self, scene: Scene) -> None:
        """The last report of a node gives all of its unused allowances back."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(need=QUOTA)
        await ada.leaves(ada.cell())

        assert QUOTA == (await bob.reports(need=QUOTA)).allowance

    @claim
    async def test_a_name_that_has_left_is_not_heard_any_more(self, scene: Scene) -> None:
        """A message that arrives after its node has left changes nothing, and the hub grants nothing for it."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(current=30)
        late = ada.batch(ada.cell(current=20, need=10))
        await ada.leaves(ada.cell(current=30))

        assert (Status.LAPSED, ()) == (await ada.sends(late))[2:4]
        assert (Status.LAPSED, ()) == (await ada.sends(ada.batch(ada.cell(current=40, need=10))))[2:4]
        assert 30 == (await bob.reports()).current

    @claim
    async def test_a_lease_that_is_over_is_not_renewed(self, scene: Scene) -> None:
        """A report that comes after the node's lease has ended is not merged: the node needs a new name."""
        ada, bob = scene.voice(lease_us=SHORT_LEASE_US), scene.voice()
        await ada.reports(current=30)
        scene.pass_time(LEASE_S + 0.001)

        assert (Status.LAPSED, ()) == (await ada.sends(ada.batch(ada.cell(current=70))))[2:4]
        assert (await bob.reports()).current < 70

    @claim
    async def test_a_lease_lasts_to_its_end(self, scene: Scene) -> None:
        """The hub does not give a node up before the end of its lease."""
        ada = scene.voice(lease_us=SHORT_LEASE_US)
        await ada.reports(current=30)
        scene.pass_time(LEASE_S - 0.001)

        assert Status.MERGED == (await ada.says_hello()).status

    @claim
    async def test_any_batch_renews_the_lease(self, scene: Scene) -> None:
        """A batch renews the node's lease even if it has no cells."""
        ada, bob = scene.voice(lease_us=SHORT_LEASE_US), scene.voice()
        held = (await ada.reports(need=QUOTA)).allowance
        for _ in range(3):
            scene.pass_time(LEASE_S / 2)
            assert Status.MERGED == (await ada.says_hello()).status

        assert QUOTA - held == (await bob.reports(need=QUOTA)).allowance

    @claim
    async def test_an_answer_counts_the_nodes_that_hold_a_lease(self, scene: Scene) -> None:
        """The answered node counts; nodes that have left, and those whose leases have ended, do not."""
        ada, bob, eve = scene.voice(), scene.voice(), scene.voice(lease_us=SHORT_LEASE_US)
        counted = [(await voice.says_hello()).nodes for voice in (ada, bob, eve)]
        await bob.leaves()
        counted.append((await ada.says_hello()).nodes)
        scene.pass_time(LEASE_S + INTERVAL_S)
        counted.append((await ada.says_hello()).nodes)

        assert [1, 2, 3, 2, 1] == counted

    @claim
    async def test_an_expired_nodes_allowance_is_not_dealt_out_in_the_same_window(self, scene: Scene) -> None:
        """When a node's lease ends, its allowance counts as used until the window ends: the node may have used it."""
        ada, bob = scene.voice(lease_us=SHORT_LEASE_US), scene.voice()
        held = (await ada.reports(need=50)).allowance
        scene.pass_time(LEASE_S + INTERVAL_S)

        answer = await bob.reports(need=QUOTA)

        assert answer.allowance <= QUOTA - held
        assert held <= answer.current

    @claim
    async def test_a_lapsed_node_goes_on_under_a_new_name(self, scene: Scene) -> None:
        """When a node's name has lapsed, the hub merges the node's reports under a new name like a new node's."""
        ada = scene.voice(lease_us=SHORT_LEASE_US)
        await ada.reports(current=30)
        scene.pass_time(LEASE_S + 1)
        renamed = scene.voice(account=ada.account)

        assert Status.MERGED == (await renamed.exchanges(renamed.batch(renamed.cell(current=5)))).status

    @claim
    async def test_totals_are_those_of_all_accounts(self, scene: Scene) -> None:
        """The hub sums up the charges and the refunds of all accounts, for each limit separately."""
        ada, bob = scene.voice(), scene.voice()
        assert {} == await scene.hub.totals()

        await ada.exchanges(ada.batch(limits=(limit(charged=10, refunded=1), limit("other", charged=5))))
        await bob.exchanges(bob.batch(ada.cell(of=limit(charged=7, refunded=2))))

        assert {"limit": Totals(17, 3), "other": Totals(5, 0)} == await scene.hub.totals()
        assert 14 == (await scene.hub.totals())["limit"].net

    @claim
    async def test_totals_are_not_doubled_by_a_new_name(self, scene: Scene) -> None:
        """An account stays the same when its node takes a new name, so its charges count once."""
        ada = scene.voice(account="one")
        await ada.leaves(limits=(limit(charged=10),))
        renamed = scene.voice(account="one")
        await renamed.exchanges(renamed.batch(limits=(limit(charged=12),)))

        assert {"limit": Totals(12, 0)} == await scene.hub.totals()

    @claim
    async def test_totals_remember_nodes_that_have_left(self, scene: Scene) -> None:
        """The totals still contain the charges of a node that has left when its window and its lease are over."""
        ada, bob = scene.voice(lease_us=SHORT_LEASE_US), scene.voice()
        await ada.leaves(ada.cell(of=limit(charged=10), current=10))
        await bob.exchanges(bob.batch(limits=(limit(charged=1),)))
        assert {"limit": Totals(11, 0)} == await scene.hub.totals()

        scene.pass_time(20 * LIMIT.window_us / SECOND_US)
        newcomer = scene.voice()
        await newcomer.reports(of=limit(charged=2))

        assert {"limit": Totals(13, 0)} == await scene.hub.totals()
