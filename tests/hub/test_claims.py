"""Goal: a hub that breaks a promise fails a claim. Method: hubs with one fault each."""

from __future__ import annotations

import subprocess
import sys
from unittest import SkipTest

import pytest

from reconverge.hub import Hub
from reconverge.testing import HubClaims, ManualClock, ReaderClaims
from reconverge_sync.memory import MemoryHub
from tests.support.hubs import wrong_hubs as wrong
from tests.support.hubs import wrong_stores
from tests.support.hubs.reached import StoreClaims

FAULTS: list[tuple[type[MemoryHub], str]] = [
    (wrong.Maximum, "test_counts_can_fall"),
    (wrong.Accumulating, "test_the_newest_count_replaces_the_older_ones"),
    (wrong.Renumbering, "test_a_batch_that_comes_twice_counts_once"),
    (wrong.Renumbering, "test_a_batch_that_comes_late_changes_nothing"),
    (wrong.Renumbering, "test_allowances_sum_to_at_most_the_capacity"),
    (wrong.Renumbering, "test_strict_nodes_never_exceed_the_limit"),
    (wrong.Generous, "test_allowances_sum_to_at_most_the_capacity"),
    (wrong.Generous, "test_strict_nodes_never_exceed_the_limit"),
    (wrong.Trusting, "test_what_is_given_back_goes_to_the_node_in_need"),
    (wrong.Trusting, "test_all_nodes_counts_are_summed"),
    (wrong.Trusting, "test_balanced_nodes_stay_within_their_bound"),
    (wrong.Trusting, "test_all_views_agree_after_quiet"),
    (wrong.Ungrateful, "test_what_a_node_has_used_stays_used_when_it_leaves"),
    (wrong.Ungrateful, "test_a_departed_nodes_bucket_drains"),
    (wrong.Ungrateful, "test_strict_nodes_never_exceed_the_limit"),
    (wrong.Patient, "test_a_lease_that_is_over_is_not_renewed"),
    (wrong.Hasty, "test_a_lease_lasts_to_its_end"),
    (wrong.Grand, "test_the_smallest_capacity_of_all_live_nodes_counts"),
    (wrong.Lavish, "test_a_node_holds_little_unused_if_the_window_outlasts_its_lease"),
    (wrong.Lavish, "test_a_node_that_vanishes_takes_little_of_a_long_window_along"),
    (wrong.Piecemeal, "test_an_ask_is_granted_whole_or_not_at_all"),
    (wrong.Piecemeal, "test_the_oldest_ask_comes_first"),
    (wrong.Hoarding, "test_what_waits_is_granted_and_nothing_in_advance"),
    (wrong.Promising, "test_what_is_granted_counts_until_its_node_speaks_again"),
    (wrong.Promising, "test_a_new_key_that_all_ask_about_at_once_is_granted_once"),
    (wrong.Promising, "test_what_is_granted_may_outlast_the_window"),
    (wrong.Whole, "test_parts_of_a_request_add_up"),
    (wrong.Unforgiving, "test_a_reset_is_for_all_nodes"),
    (wrong.Unforgiving, "test_the_newest_reset_wins"),
    (wrong.Anonymous, "test_lost_data_come_back_under_another_generation"),
    (wrong.Restless, "test_the_generation_is_the_same_for_all"),
    (wrong.Curt, "test_refused_batches_are_answered_with_the_generation_too"),
    (wrong.Unlearned, "test_allowances_survive_the_loss_of_data"),
    (wrong.Unlearned, "test_nothing_new_is_granted_until_all_can_have_spoken"),
    (wrong.Unlearned, "test_a_node_that_brings_news_of_lost_data_warns_the_hub"),
    (wrong.NameCounting, "test_totals_are_not_doubled_by_a_new_name"),
    (wrong.Mangling, "test_hostile_keys_do_not_collide"),
    (wrong.Stripping, "test_hostile_keys_do_not_collide"),
    (wrong.Normalizing, "test_hostile_keys_do_not_collide"),
    (wrong.Truncating, "test_hostile_keys_do_not_collide"),
    (wrong.Shortening, "test_hostile_keys_do_not_collide"),
    (wrong.Tagged, "test_hostile_keys_do_not_collide"),
    (wrong.LimitBlind, "test_limits_do_not_share_keys"),
    (wrong.Reversing, "test_a_batch_may_have_256_cells"),
    (wrong.Rounding, "test_large_numbers_are_exact"),
    (wrong.Shardless, "test_shards_share_nothing_but_totals"),
    (wrong.Forgetful, "test_a_sliding_window_remembers_the_one_before"),
    (wrong.Forgetful, "test_the_demand_of_the_last_window_is_answered_in_the_next"),
    (wrong.Faithful, "test_it_can_be_used_from_another_loop_after_closing"),
    (wrong.Faithful, "test_it_outlives_a_loop_that_was_closed_under_it"),
    (wrong.Confused, "test_a_cancelled_exchange_does_no_harm"),
    (wrong.Single, "test_exchanges_may_overlap"),
    (wrong.OnceClosed, "test_closing_twice_is_harmless"),
    (wrong.OnceClosed, "test_it_can_be_used_again_after_closing"),
    (wrong.Frozen, "test_a_window_that_is_over_does_not_count_for_readers"),
    (wrong.Frozen, "test_what_a_vanished_node_may_have_used_counts_for_readers"),
    (wrong.Noting, "test_a_reader_is_no_node"),
    (wrong.Noting, "test_reading_begins_no_cell_and_extends_none"),
    (wrong.Frank, "test_a_hub_that_is_not_there_is_unavailable"),
    (wrong_stores.Cached, "test_what_was_posted_last_is_read_by_all"),
    (wrong_stores.Cached, "test_every_reader_may_post"),
    (wrong_stores.CutSettings, "test_settings_that_are_too_long_are_seen_to_be_that"),
    (wrong_stores.Empty, "test_before_anything_is_posted_nothing_is_read"),
    (wrong_stores.Unconditional, "test_an_index_is_swapped_for_what_was_read_and_for_nothing_else"),
    (wrong_stores.Unconditional, "test_of_writers_at_once_one_is_in_time"),
    (wrong_stores.CutPages, "test_pages_and_indexes_that_are_too_long_are_seen_to_be_that"),
    (wrong_stores.KnowsAllPages, "test_before_anything_is_put_nothing_is_there"),
    (wrong_stores.KnowsAllPages, "test_pages_that_are_not_there_are_named"),
    (wrong_stores.Endless, "test_a_snapshot_is_kept_for_its_time"),
    (wrong_stores.Endless, "test_there_are_so_many_snapshots_and_no_more"),
    (wrong_stores.Open, "test_nothing_is_taken_while_no_console_is_open"),
    (wrong_stores.Open, "test_a_console_is_open_to_the_last_microsecond"),
    (wrong_stores.Closing, "test_of_two_consoles_the_one_that_is_open_longest_counts"),
    (wrong_stores.CutSnapshots, "test_the_newest_snapshot_of_each_node_is_read_by_all"),
]


def _contract_of(hub_class: type[MemoryHub]) -> HubClaims:
    """The claims, as they are tried on hubs of that class."""

    class Claims(HubClaims, ReaderClaims, StoreClaims):
        def make_hub(self, clock: ManualClock) -> Hub:
            self.clock = clock
            return hub_class(clock=clock, shards=2)

        def make_unreachable(self) -> Hub:
            return hub_class()

        async def lose_data(self, hub: Hub) -> None:
            assert isinstance(hub, MemoryHub)
            hub.lose_data()

    return Claims()


@pytest.mark.parametrize(
    ("hub_class", "claim"), FAULTS, ids=[f"{hub_class.__name__}-{claim[5:]}" for hub_class, claim in FAULTS]
)
def test_a_wrong_hub_is_found_out(hub_class: type[MemoryHub], claim: str) -> None:
    """The claim that its fault contradicts fails."""
    with pytest.raises((AssertionError, RuntimeError, ConnectionRefusedError)):
        getattr(_contract_of(hub_class), claim)()


def test_what_a_hub_cannot_be_asked_is_skipped() -> None:
    """Only the making of a hub must be given; claims that need more end as skipped, which any runner understands."""

    class Claims(HubClaims):
        def make_hub(self, clock: ManualClock) -> Hub:
            return MemoryHub(clock=clock)

    for claim in (
        "test_namespaces_share_nothing",
        "test_a_hub_that_is_not_there_is_unavailable",
        "test_lost_data_come_back_under_another_generation",
    ):
        with pytest.raises(SkipTest):
            getattr(Claims(), claim)()


def test_time_is_only_travelled_where_it_can_be() -> None:
    """For a hub that goes by its own clock, claims about leases are skipped, and claims about allowances are not."""

    class Claims(HubClaims):
        own_clock = True

        def make_hub(self, clock: ManualClock) -> Hub:
            return MemoryHub()

    Claims().test_all_of_the_limit_can_be_used_by_one_node()
    with pytest.raises(SkipTest):
        Claims().test_a_lease_that_is_over_is_not_renewed()


WITHOUT_PYTEST = """
import sys, unittest
from reconverge.testing import HubClaims
from reconverge_sync.memory import MemoryHub

class TestMine(HubClaims, unittest.TestCase):
    def make_hub(self, clock):
        return MemoryHub(clock=clock)

    async def lose_data(self, hub):
        hub.lose_data()

assert not any(name.startswith(("pytest", "_pytest", "hypothesis")) for name in sys.modules)
unittest.main()
"""


@pytest.mark.slow
def test_the_contract_needs_no_pytest() -> None:
    """Any runner of tests can run it, and a dozen lines are enough to name the hub."""
    run = subprocess.run([sys.executable, "-c", WITHOUT_PYTEST], capture_output=True, text=True, check=False)

    assert 0 == run.returncode, run.stderr
    assert run.stderr.rstrip().endswith("OK (skipped=2)")


def test_a_contract_without_a_hub_says_what_is_missing() -> None:
    """Whoever inherits it and forgets the one thing to say is told."""
    with pytest.raises(NotImplementedError, match="make_hub"):
        HubClaims().test_closing_twice_is_harmless()
