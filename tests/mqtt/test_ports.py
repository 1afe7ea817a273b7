"""Goal: what members of a broker keep beside the ledger outlives its leader, the broker, and former versions.

Method: members at a real mosquitto, of which the one that leads stops or dies, and a broker that forgets everything.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path

import aiomqtt
import pytest

from reconverge.clock import SystemClock
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.port import Adoptable, ContractStore, KeyMarker, KeyReader, SettingsStore, UsageHub, Working
from reconverge.hub.registry import HubSettings
from reconverge.hub.usage import NodeLoad, Period, UsageKey
from reconverge.usage.export import Exporter
from reconverge.usage.reading import from_many_addresses
from reconverge_sync.mqtt.hub import MqttHub
from reconverge_sync.mqtt.messages import MalformedMessage, MessageKind, sealed
from reconverge_sync.mqtt.retained.contracts import PURGED_AFTER_S, Stamp, read_index, write_index
from tests.support.brokers import Mosquitto
from tests.support.hubs.fleet_on_mqtt import ImpatientHub, MqttFleet
from tests.support.metered import HOUR_S, OpenMeter, batch_of, clock_in_november, row_of, rows_of
from tests.support.poison import batch
from tests.support.waiting import eventually_in_loop

MAX = 1000
KEEP_S = 3600.0
PAGE = b"a page"
DIGEST = sha256(PAGE).hexdigest()
HOUR = row_of(0).period


def test_a_broker_serves_what_the_other_hubs_serve() -> None:
    """Every port but that of a region."""
    hub = MqttHub("mqtt://localhost", HubSettings("shop", 1.0))
    ports = (Adoptable, ContractStore, KeyMarker, KeyReader, SettingsStore, UsageHub, Working)

    assert [True] * len(ports) == [isinstance(hub, port) for port in ports]


async def leader_and_other(fleet: MqttFleet) -> tuple[ImpatientHub, ImpatientHub]:
    """Two members that have exchanged, the leader first."""
    leader, other = fleet.join(), fleet.join()
    await leader.exchange(batch("node1.0"))
    await other.exchange(batch("node2.0"))
    return leader, other


# ------------------------------------------------------------ usage


async def test_usage_is_handed_over_with_all_that_belongs_to_it(mosquitto: Mosquitto) -> None:
    """Totals, what accounts said, events that are not confirmed, marks, loads, and the exporter that leads."""
    fleet = MqttFleet(mosquitto.url, hub_clock=clock_in_november())
    leader, other = await leader_and_other(fleet)
    ledger = other.usage
    rows = [row_of(5), row_of(7, identity="zeta", route="/\N{SNOWMAN}"), row_of(2, hour=HOUR.number + 1)]
    await ledger.record(batch_of(rows)._replace(load=NodeLoad("one", 1.5, 2.5, 0)))
    await ledger.record(batch_of([row_of(3)], account="gone"))
    await ledger.record(batch_of(account="gone", sequence=2, answered=1, leaving=[HOUR]))
    assert (await ledger.lead_export("hour", "one", 60)).leads
    await ledger.close_period(HOUR, 0)
    before = [[await ledger.issue(HOUR, 0, page) for page in range(16)], await ledger.loads()]
    await ledger.record(batch_of([row_of(6)], sequence=2, answered=1))
    await ledger.finish(Period("hour", HOUR.number - 1), 0, None)
    marks, totals = await ledger.marks("hour", 0), await rows_of(ledger, HOUR)

    await leader.close()

    assert totals == await rows_of(ledger, HOUR)
    assert marks == await ledger.marks("hour", 0)
    assert not (await ledger.lead_export("hour", "two", 60)).leads
    events = [event for page in range(16) for event in await ledger.issue(HOUR, 0, page)]
    assert [0, 0, 1] == sorted(event.number for event in events)
    assert {event for page in before[0] for event in page} <= set(events)
    assert before[1] == await ledger.loads()
    assert not (await ledger.record(batch_of([row_of(9)], account="gone", sequence=3, answered=2))).merged
    assert (2, True) == (await ledger.record(batch_of([row_of(8)], sequence=3, answered=2)))[:2]
    assert 8 + 3 == (await rows_of(ledger, HOUR))[row_of(0).key].cost
    assert [other] == fleet.keepers()
    await other.close()


async def test_a_member_that_tells_usage_alone_leads_by_the_clock_of_the_leader_before(mosquitto: Mosquitto) -> None:
    """Its own is years ahead: with that, what the others tell would be refused, and what is there forgotten."""

    class Ahead:
        """The clock of that member's machine."""

        def monotonic_ns(self) -> int:
            return fleet.clock.monotonic_ns()

        def wall_ns(self) -> int:
            return fleet.clock.wall_ns() + 10**17

    fleet = MqttFleet(mosquitto.url)
    leader, other = fleet.join(), fleet.join()
    other._clock = Ahead()
    hour = int(SystemClock.wall_ns() / 1e9 // HOUR_S)
    await leader.usage.record(batch_of([row_of(5, hour=hour)]))
    await other.usage.record(batch_of([row_of(7, hour=hour)], account="b"))
    await leader.dies()
    answer = await other.usage.record(batch_of([row_of(9, hour=hour)], account="c"))

    assert [other] == fleet.keepers()
    assert (True, ()) == (answer.merged, answer.refused)
    await other.close()


def test_a_leader_that_dies_before_an_export_has_nothing_billed_twice(mosquitto: Mosquitto) -> None:
    """Nodes that live tell the next leader again; events have the ids that they had, and a receiver drops those."""

    async def tried() -> OpenMeter:
        clock = clock_in_november()
        fleet = MqttFleet(mosquitto.url, hub_clock=clock)
        leader, other = await leader_and_other(fleet)
        meter = OpenMeter("com.reconverge.usage", "cost")
        await other.usage.record(batch_of([row_of(5)]))
        issued = [event for page in range(16) for event in await other.usage.issue(HOUR, 0, page)]
        assert [(0, 5)] == [(event.number, event.counts.cost) for event in issued]

        await leader.dies()
        answer = await other.usage.record(batch_of([row_of(5)], sequence=2, answered=1))
        assert (0, False) == answer[:2]
        assert (await other.usage.record(batch_of([row_of(5)], sequence=3, answered=0))).merged

        again = [event for page in range(16) for event in await other.usage.issue(HOUR, 0, page)]
        await other.close()
        assert issued == again
        return meter

    asyncio.run(tried())


async def test_what_a_node_forgets_is_taken_back(mosquitto: Mosquitto) -> None:
    """A node that counts an identity from nothing again adds to what others have told, and to no former count."""
    fleet = MqttFleet(mosquitto.url)
    leader, other = await leader_and_other(fleet)
    await other.usage.record(batch_of([row_of(5), row_of(2, identity="zeta")]))
    await other.usage.record(batch_of([row_of(4)], account="second"))

    await other.usage.retract(batch_of().account, 0, [(HOUR, row_of(0).key)])

    found = {key.identity: row.cost for key, row in (await rows_of(other.usage, HOUR)).items()}
    assert {"acme": 4, "zeta": 2} == found
    await other.usage.record(batch_of([row_of(1)], sequence=2, answered=1))
    assert 4 + 1 == (await rows_of(other.usage, HOUR))[row_of(0).key].cost
    await other.close()
    await leader.close()


async def test_a_broker_merges_no_addresses(mosquitto: Mosquitto) -> None:
    """Asking for those of the fleet is an error that says where each node's own are."""
    hub = MqttFleet(mosquitto.url).join()
    with pytest.raises(InvalidSetting, match=r"cannot merge the addresses"):
        await from_many_addresses(hub.usage, HOUR)


async def test_a_successor_of_the_version_before_takes_over_the_ledger_alone(mosquitto: Mosquitto) -> None:
    """It knows no usage; what it does not know it counts as of no use, and nothing else suffers."""
    fleet = MqttFleet(mosquitto.url)
    leader, old = await leader_and_other(fleet)
    await leader.usage.record(batch_of([row_of(5)]))
    make_old(old)

    await leader.close()

    assert 14 == (await old.totals())["login"].charged
    assert 0 < old.rejects["topic"]
    await old.close()


def make_old(hub: ImpatientHub) -> None:
    """Makes a member know only the messages of the version before: it counts all others as of no use."""
    for server in hub.membership().servers:
        hear = server.hear

        def hear_what_is_known(kind: MessageKind, sender: str, payload: bytes, hear: object = hear) -> None:
            if kind > MessageKind.LEDGER:
                hub.rejects["topic"] += 1
            else:
                assert callable(hear)
                hear(kind, sender, payload)

        server.hear = hear_what_is_known  # type: ignore[method-assign]


async def test_an_old_leader_holds_up_nothing_but_what_it_does_not_know(own_mosquitto: Mosquitto) -> None:
    """Exchanges go on; who asks for more is told why there is no answer; settings, pages and marks need no leader."""
    url = f"{own_mosquitto.url}?tenure=1"
    old, new = (MqttHub(url, HubSettings("shop", 8.0)) for _ in range(2))
    await old.exchange(batch("node1.0"))
    make_old(old)  # type: ignore[arg-type]  # a member like all others
    await new.exchange(batch("node2.0"))
    assert "one" == await new.mark_keys("one", keep_s=KEEP_S)
    await new.put_page(DIGEST, PAGE, keep_s=KEEP_S)
    assert PAGE == await new.get_page(DIGEST, bytes_max=MAX)
    problems = []
    for asked in (new.usage.record(batch_of([row_of(5)])), new.data(0), swap(new, b"index", None)):
        with pytest.raises(HubUnavailable) as caught:
            await asked
        problems.append(str(caught.value))
    await new.exchange(batch("node2.0", 2))
    await new.close()
    await old.close()

    assert 3 == "\n".join(problems).count("a leader of an older version does not know this call")


async def test_a_leader_without_room_for_usage_says_so(mosquitto: Mosquitto) -> None:
    """Its rows stay and may change, and the node keeps those that were not taken."""
    fleet = MqttFleet(mosquitto.url)
    leader, other = await leader_and_other(fleet)
    leader.membership().servers[0].candidate._usage._held_max = 4
    await other.usage.record(batch_of([row_of(5), row_of(5, identity="zeta")]))
    with pytest.raises(HubUnavailable, match=r"^full: this hub keeps 4 rows of usage"):
        await other.usage.record(batch_of([row_of(5, identity="more")], sequence=2, answered=1))
    assert (await other.usage.record(batch_of([row_of(6)], sequence=3, answered=1))).merged
    assert {"acme": 6, "zeta": 5} == {key.identity: row.cost for key, row in (await rows_of(other.usage, HOUR)).items()}
    await other.close()
    await leader.close()


@pytest.mark.slow
async def test_a_long_page_is_told_in_parts(mosquitto: Mosquitto) -> None:
    """All of its rows, each once, also where no single message has room for them."""
    fleet = MqttFleet(mosquitto.url)
    leader, other = await leader_and_other(fleet)
    identities = [f"{number:05d}{'x' * 500}" for number in range(1500)]
    for sequence, first in enumerate(range(0, 1500, 150), 1):
        rows = [row_of(1, identity=identity) for identity in identities[first : first + 150]]
        await other.usage.record(batch_of(rows, sequence=sequence, answered=sequence - 1))
    found = await rows_of(other.usage, HOUR)
    assert {UsageKey(identity, "api", "") for identity in identities} == set(found)
    delivered: list[str] = []
    exporter = Exporter(other.usage, lambda events: delivered.extend(each.key.identity for each in events))
    await exporter.run()
    assert sorted(identities) == sorted(delivered)
    await other.close()
    await leader.close()


# ------------------------------------------------------------ contracts


async def swap(hub: MqttHub, payload: bytes, over: bytes | None) -> bool:
    """Whether the index was swapped."""
    return await hub.swap_index(payload, over=over, bytes_max=MAX, keep_s=KEEP_S)


async def test_contracts_outlive_the_leader_and_need_none_to_be_read(mosquitto: Mosquitto) -> None:
    """The broker retains them, so a killed leader takes nothing along, and a newcomer reads before any election."""
    fleet = MqttFleet(mosquitto.url)
    leader, other = await leader_and_other(fleet)
    await leader.put_page(DIGEST, PAGE, keep_s=KEEP_S)
    assert await swap(other, b"first", None)
    await leader.dies()
    await other.close()

    late = MqttHub(mosquitto.url, HubSettings(fleet.namespace, 20.0))
    assert b"first" == await late.read_index(bytes_max=MAX)
    assert PAGE == await late.get_page(DIGEST, bytes_max=MAX)
    assert "" == late._per_loop.get().servers[0].election.member
    await late.close()


async def test_an_index_comes_by_itself(mosquitto: Mosquitto) -> None:
    """A member that reads nothing knows of it when it is there."""
    fleet = MqttFleet(mosquitto.url)
    leader, other = await leader_and_other(fleet)
    index = other.membership().retained.index
    changed = index.changed
    assert await swap(leader, b"first", None)
    await asyncio.wait_for(changed.wait(), 30.0)
    assert b"first" == index.read(MAX)
    await other.close()
    await leader.close()


async def test_what_a_leader_writes_too_late_is_not_taken_in(mosquitto: Mosquitto) -> None:
    """An index of an earlier term comes when another one counts: all keep that, and it is retained again."""
    fleet = MqttFleet(mosquitto.url)
    former = fleet.join()
    await former.exchange(batch("node0.0"))
    await former.dies()
    leader, other = await leader_and_other(fleet)
    assert await swap(other, b"first", None)
    topic = f"{fleet.namespace}/rc/v1/contracts"
    term = leader.membership().servers[0].election.term
    assert term > 1
    stale = write_index(Stamp(term - 1, 1), 1 << 40, b"stale")
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as stalled:
        await stalled.publish(topic, b"noise", qos=1, retain=True)
        await stalled.publish(topic, stale, qos=1, retain=True)
        await eventually_in_loop(lambda: other.rejects["late"] > 0, "it has come")
        assert b"first" == await other.read_index(bytes_max=MAX)
        await eventually_in_loop(lambda: leader.rejects["late"] > 0, "it has come to the leader")
    late = fleet.join()

    async def reads_the_first() -> bool:
        read = await late.read_index(bytes_max=MAX)
        await late.close()
        return read == b"first"

    async with asyncio.timeout(30.0):
        while not await reads_the_first():
            pass
    assert await swap(other, b"second", b"first")
    for hub in (other, leader):
        await hub.close()


async def test_what_the_leader_before_has_written_is_heard_before_the_next_compares(mosquitto: Mosquitto) -> None:
    """A fence on the same topic comes after it: so an index that is under way is not overwritten unseen."""
    fleet = MqttFleet(mosquitto.url)
    leader, other = await leader_and_other(fleet)
    index = leader.membership().retained.index
    term = leader.membership().servers[0].election.term
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as former:
        written = write_index(Stamp(term, 1), 1 << 40, b"written")
        await former.publish(f"{fleet.namespace}/rc/v1/contracts", written, qos=1, retain=True)
    assert not await swap(other, b"unseen", None)
    assert b"written" == index.read(MAX)
    for hub in (other, leader):
        await hub.close()


async def test_a_broker_that_forgets_has_contracts_put_again(own_mosquitto: Mosquitto) -> None:
    """They are lost with it, all members see that, and whichever still has them may put them again."""
    fleet = MqttFleet(own_mosquitto.url)
    leader, other = await leader_and_other(fleet)
    await other.put_page(DIGEST, PAGE, keep_s=KEEP_S)
    assert await swap(other, b"first", None)
    own_mosquitto.kill()
    await eventually_in_loop(lambda: all(not server.election.member for server in fleet.servers()), "cut off")
    own_mosquitto.start()
    await eventually_in_loop(lambda: all(server.election.member for server in fleet.servers()), "back")

    assert None is await other.read_index(bytes_max=MAX)
    assert [DIGEST] == await other.keep_pages([DIGEST], keep_s=KEEP_S)
    await other.put_page(DIGEST, PAGE, keep_s=KEEP_S)
    assert await swap(other, b"first", None)
    for hub in (other, leader):
        await hub.close()


@pytest.mark.parametrize("query", ["", "?protocol=5"])
async def test_pages_that_are_over_are_deleted(mosquitto: Mosquitto, query: str) -> None:
    """By the leader, some time later, with what is no page; those that are kept stay."""
    fleet = MqttFleet(mosquitto.url + query)
    leader, other = await leader_and_other(fleet)
    now_s = SystemClock.wall_ns() // 10**9
    ages = {"00" * 32: now_s - PURGED_AFTER_S - 60, "11" * 32: now_s - 60}
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as writer:
        for digest, until_s in ages.items():
            page = sealed(MessageKind.PAGE, until_s.to_bytes(8, "little") + PAGE)
            await writer.publish(f"{fleet.namespace}/rc/v1/page/{digest}", page, qos=1, retain=True)
        await writer.publish(f"{fleet.namespace}/rc/v1/page/{'22' * 32}", b"noise", qos=1, retain=True)
    await other.put_page(DIGEST, PAGE, keep_s=KEEP_S)
    pages = leader.membership().retained.pages

    assert 2 == await pages.sweep()
    assert 0 == await pages.sweep()
    assert ["00" * 32, "11" * 32, "22" * 32] == sorted(
        await other.keep_pages([*ages, "22" * 32, DIGEST], keep_s=KEEP_S)
    )
    assert PAGE == await other.get_page(DIGEST, bytes_max=MAX)
    assert None is await other.get_page("11" * 32, bytes_max=MAX)
    for hub in (other, leader):
        await hub.close()


async def test_a_page_that_is_kept_for_shorter_ends_sooner(mosquitto: Mosquitto) -> None:
    """And one that is kept for about as long as before is not sent again."""
    fleet = MqttFleet(mosquitto.url)
    hub = fleet.join()
    pages = hub.membership().retained.pages
    until: list[int] = []

    async def kept(keep_s: float) -> None:
        assert [] == await hub.keep_pages([DIGEST], keep_s=keep_s)
        async with pages._watching([DIGEST]):
            until.append(pages._page(DIGEST)[0])

    await hub.put_page(DIGEST, PAGE, keep_s=80_000.0)
    for keep_s in (80_000.0, 79_000.0, 800.0, 80_000.0):
        await kept(keep_s)
    await hub.close()
    first, same, short, long = until
    assert first == same
    assert 800 <= short - SystemClock.wall_ns() // 10**9 <= 1000
    assert first <= long


def test_a_user_who_may_not_write_is_told(tmp_path: Path) -> None:
    """Though a broker of MQTT 3.1.1 confirms what it throws away: each of these waits until it has come back."""

    async def tried(url: str) -> list[str]:
        hub = MqttHub(f"{url}?tenure=1", HubSettings("shop", 2.0))
        kinds: list[str] = []
        asked = hub.put_page(DIGEST, PAGE, keep_s=KEEP_S), hub.mark_keys("one", keep_s=KEEP_S), swap(hub, b"x", None)
        for question in asked:
            try:
                await question
            except HubUnavailable as problem:
                kinds.append(problem.kind)
        await hub.close()
        return kinds

    (tmp_path / "acl").write_text("topic read #\ntopic readwrite shop/rc/v1/0/#\ntopic readwrite shop/rc/v1/gone/#\n")
    with Mosquitto("allow_anonymous true", f"acl_file {tmp_path / 'acl'}") as broker:
        assert ["permission"] * 3 == asyncio.run(tried(broker.url))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"rc",
        sealed(MessageKind.INDEX, b"short"),
        write_index(Stamp(0, 1), 1, b""),
        write_index(Stamp(1, 0), 1, b""),
    ],
    ids=len,
)
def test_what_is_no_index_is_malformed(message: bytes) -> None:
    """And nothing else is raised."""
    with pytest.raises(MalformedMessage):
        read_index(message)


# ------------------------------------------------------------ marks of keys


async def test_a_mark_is_kept_by_the_broker(mosquitto: Mosquitto) -> None:
    """Another mark is told of the one that is there, by whichever member, until that ends."""
    fleet = MqttFleet(mosquitto.url)
    one, other = fleet.join(), fleet.join()
    said = [await one.mark_keys("one", keep_s=KEEP_S), await one.mark_keys("one", keep_s=KEEP_S)]
    of_limit = [await one.mark_keys("5/h", keep_s=KEEP_S, limit="api/v1#2")]
    await one.close()
    said += [await other.mark_keys("other", keep_s=KEEP_S)]
    of_limit += [await other.mark_keys("5/m", keep_s=KEEP_S, limit=name) for name in ("api/v1#2", "api")]
    await other.close()
    late = fleet.join()
    said += [await late.mark_keys("other", keep_s=KEEP_S)]
    late.membership().retained.marks.kept["all"] = "one", 1
    said += [await late.mark_keys("other", keep_s=KEEP_S)]
    await late.close()

    assert ["one", "one", "one", "one", "other"] == said
    assert ["5/h", "5/h", "5/m"] == of_limit
