"""Promises of a hub to readers of a key: all readers see the use of the whole fleet, and change nothing.

The claims are skipped for a hub that is no `KeyReader`.
"""

from __future__ import annotations

from unittest import SkipTest

from reconverge.errors import HubUnavailable
from reconverge.hub.port import KeyReader
from reconverge.hub.reading import READ_MAX, KeyQuestion, KeyReading
from reconverge.hub.report import LimitReport
from reconverge.limit.limit import SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET
from reconverge.testing.claims.scenes.scene import (
    LEARNING_S,
    LEASE_US,
    LIMIT,
    QUOTA,
    SECOND_US,
    WINDOW_S,
    WINDOW_US,
    Scene,
    limit,
)
from reconverge.testing.claims.scenes.trial import Trial, claim

BUCKET = limit("bucket", algorithm=TOKEN_BUCKET)
SLIDING = limit("sliding", algorithm=SLIDING_WINDOW)
LOG = limit("log", algorithm=SLIDING_LOG)
HALF_A_WINDOW_S = WINDOW_S / 2


def reader(scene: Scene) -> KeyReader:
    """Returns the hub as a process without a node opens it. Skips the test if the hub reads no keys."""
    hub = scene.another_hub()
    if not isinstance(hub, KeyReader):
        raise SkipTest("this hub does not let keys be read, as it is no reconverge.hub.KeyReader")
    return hub


async def reads(hub: KeyReader, key: str = "ada", of: LimitReport = LIMIT, *, shard: int = 0) -> KeyReading:
    """Reads one key at the hub, as a process without a node does. Returns the hub's reading."""
    (reading,) = (await hub.read_keys(shard, [KeyQuestion(of, key)])).keys
    return reading


class ReadingClaims(Trial):
    """Tests of the promises of a hub about readings of keys."""

    @claim
    async def test_a_reader_sees_what_all_nodes_have_used(self, scene: Scene) -> None:
        """In a reading, used, allowances and free sum to the capacity; it counts the live nodes with the key."""
        hub, ada, bob = reader(scene), scene.voice(), scene.voice()
        await ada.reports(current=30, allowance=30)
        await bob.reports(current=12, allowance=20)

        reading = await reads(hub)

        assert (42, 8, QUOTA - 50, QUOTA, 2) == reading[:5]

    @claim
    async def test_a_reader_learns_what_lies_on_allowances(self, scene: Scene) -> None:
        """A reading counts the unused allowance of a node neither as used nor as free."""
        hub, ada = reader(scene), scene.voice()
        allowance = (await ada.reports(need=10)).allowance

        reading = await reads(hub)

        assert (0, allowance, QUOTA - allowance) == (reading.used, reading.allowances, reading.free)

    @claim
    async def test_an_unknown_key_is_unused(self, scene: Scene) -> None:
        """A key that was never used reads the same as a key that has been forgotten."""
        hub = reader(scene)
        await scene.voice().reports(current=30)

        reading = await reads(hub, "bob")

        assert (0, 0, QUOTA, QUOTA, 0) == reading[:5]

    @claim
    async def test_a_hub_without_reports_can_be_read(self, scene: Scene) -> None:
        """A hub without reports can be read: all of the limit is free, and the reading itself creates no data."""
        hub = reader(scene)

        reading = await reads(hub)

        assert (0, 0, QUOTA, QUOTA, 0) == reading[:5]
        assert (await hub.read_keys(0, [])).generation == (await hub.read_keys(0, [])).generation

    @claim
    async def test_reading_begins_no_cell_and_extends_none(self, scene: Scene) -> None:
        """Reading a key keeps it no longer at the hub, and reading an unknown key creates nothing."""
        hub, ada = reader(scene), scene.voice(lease_us=60 * SECOND_US)
        remembered = limit("remembered", algorithm=SLIDING_WINDOW)
        await ada.reports(of=remembered, current=30, reset_us=scene.hub_us())
        for _ in range(20):
            scene.pass_time(HALF_A_WINDOW_S)
            await reads(hub, of=remembered)
            await reads(hub, "never used", of=remembered)

        answer = await scene.voice().reports(of=remembered)

        assert (0, 0, QUOTA, 0) == (answer.current, answer.previous, answer.free, answer.reset_us)

    @claim
    async def test_a_reader_is_no_node(self, scene: Scene) -> None:
        """Readers do not change the hub's answers to nodes."""
        hub, ada = reader(scene), scene.voice()
        await ada.reports(current=5)
        before = await ada.reports(current=5)
        for key in ("ada", "bob"):
            await reads(hub, key)

        assert before == await ada.reports(current=5)

    @claim
    async def test_a_window_that_is_over_does_not_count_for_readers(self, scene: Scene) -> None:
        """A reader sees nothing of a window that is over, although no node has reported the next one yet."""
        hub, ada = reader(scene), scene.voice()
        await ada.reports(current=QUOTA, allowance=QUOTA)
        assert QUOTA == (await reads(hub)).used
        ends_us = (await reads(hub)).free_us
        scene.pass_time((ends_us - scene.hub_us() - 1) / SECOND_US)
        assert QUOTA == (await reads(hub)).used

        scene.pass_time(1 / SECOND_US)

        assert 0 == (await reads(hub)).used

    @claim
    async def test_what_fades_and_drains_does_so_for_readers(self, scene: Scene) -> None:
        """In readings a bucket drains by half its quota in half a window; a sliding window's use is gone after two."""
        hub, ada = reader(scene), scene.voice()
        scene.pass_time(WINDOW_S * (1 - scene.hub_us() % WINDOW_US / WINDOW_US))
        await ada.exchanges(
            ada.batch(
                ada.cell(of=BUCKET, current=80, previous=80_000, allowance=80),
                ada.cell(of=SLIDING, current=80, allowance=80),
            )
        )
        scene.pass_time(HALF_A_WINDOW_S)
        assert 30 == (await reads(hub, of=BUCKET)).used
        scene.pass_time(HALF_A_WINDOW_S)
        assert 80 == (await reads(hub, of=SLIDING)).used

        scene.pass_time(WINDOW_S)

        assert (0, 0) == ((await reads(hub, of=BUCKET)).used, (await reads(hub, of=SLIDING)).used)

    @claim
    async def test_a_reader_learns_when_there_is_room_again(self, scene: Scene) -> None:
        """A reading names the moment at which a request fits again: a microsecond earlier none fits."""
        hub, ada = reader(scene), scene.voice(lease_us=8 * WINDOW_US)
        full = (BUCKET, SLIDING, LOG, LIMIT)
        await ada.exchanges(
            ada.batch(
                ada.cell(of=BUCKET, current=QUOTA, previous=1000 * QUOTA, allowance=QUOTA),
                ada.cell(of=LOG, current=QUOTA, previous=WINDOW_US, allowance=QUOTA),
                *(ada.cell(of=each, current=QUOTA, allowance=QUOTA) for each in (SLIDING, LIMIT)),
            )
        )
        for each in sorted([((await reads(hub, of=each)).free_us, each) for each in full]):
            free_us, of = each
            scene.pass_time((free_us - scene.hub_us() - 1) / SECOND_US)
            assert QUOTA == (await reads(hub, of=of)).used, of.name

            scene.pass_time(1 / SECOND_US)

            assert (await reads(hub, of=of)).used <= QUOTA - 1, of.name
            assert (await reads(hub, of=of)).free_us == scene.hub_us()

    @claim
    async def test_what_a_vanished_node_may_have_used_counts_for_readers(self, scene: Scene) -> None:
        """From the end of a silent node's lease on, a reader sees as used what that node may have used."""
        hub, ada = reader(scene), scene.voice(lease_us=60 * SECOND_US)
        of = limit("long", window_us=100 * WINDOW_US, overshoot_milli=0)
        await ada.reports(of=of)
        scene.pass_time(LEARNING_S)
        allowance = (await ada.reports(of=of, need=QUOTA)).allowance
        scene.pass_time(60)
        assert (0, allowance, 1) == ((await reads(hub, of=of)).used, (await reads(hub, of=of)).allowances, 1)

        scene.pass_time(1 / SECOND_US)

        reading = await reads(hub, of=of)
        assert (allowance, 0, QUOTA - allowance, 0) == (reading.used, reading.allowances, reading.free, reading.nodes)

    @claim
    async def test_a_reader_learns_that_the_hub_learns(self, scene: Scene) -> None:
        """After a loss of data a reading names the moment until which it may show too little use."""
        hub, strict = reader(scene), limit(overshoot_milli=0)
        ada = scene.voice()
        await ada.reports(of=strict)
        scene.pass_time(LEARNING_S)
        assert 0 == (await reads(hub, of=strict)).learns_until_us
        await self.lose_data(scene.hub)
        await ada.says_hello()

        reading = await reads(hub, of=strict)

        learning_us = LEASE_US + 2 * WINDOW_US + round(self.grace_s * SECOND_US)
        assert scene.hub_us() + learning_us == reading.learns_until_us

    @claim
    async def test_questions_are_answered_in_their_order(self, scene: Scene) -> None:
        """The hub answers up to READ_MAX questions at a time, in their order, and refuses more."""
        hub, ada = reader(scene), scene.voice()
        numbers = [7 * number % 31 for number in range(READ_MAX)]
        await ada.exchanges(ada.batch(*(ada.cell(f"key{n}", current=used) for n, used in enumerate(numbers))))
        questions = [KeyQuestion(LIMIT, f"key{number}") for number in range(READ_MAX)]

        readings = await hub.read_keys(0, questions)

        assert numbers == [reading.used for reading in readings.keys]
        try:
            await hub.read_keys(0, [*questions, KeyQuestion(LIMIT, "one more")])
        except HubUnavailable:
            return
        raise AssertionError(
            f"{len(questions) + 1} questions were answered, more than READ_MAX; raise HubUnavailable instead"
        )

    @claim
    async def test_readers_of_a_shard_see_that_shard(self, scene: Scene) -> None:
        """A key that was reported to one shard is unknown at another."""
        hub = reader(scene)
        last = hub.shards - 1
        await scene.voice(shard=last).reports(current=30)

        used = [(await reads(hub, shard=shard)).used for shard in range(hub.shards)]

        assert [0] * last + [30] == used

    def test_what_cannot_be_read_is_unavailable(self) -> None:
        """An outage raises HubUnavailable for a reader as for an agent, and nothing else."""
        hub = self.make_unreachable()

        async def read(_: Scene) -> None:
            if not isinstance(hub, KeyReader):
                raise SkipTest("this hub does not let keys be read, as it is no reconverge.hub.KeyReader")
            try:
                await reads(hub)
            except HubUnavailable:
                return
            finally:
                await hub.close()
            raise AssertionError("a hub without its server answered a reader; it must raise HubUnavailable")

        self.on_a_scene(read)
