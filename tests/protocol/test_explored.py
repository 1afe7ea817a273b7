"""Goal: no limit that has a bound is exceeded, and none stays shut, in whichever order things happen to a few nodes.

Method: all short sequences of events on the production code, long ones at random, and single stories that were once
wrong, each judged against one that knows all. The search itself is judged by worlds that are equal, and that are not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge.clock import SECOND_NS
from reconverge.hub.report import Totals
from reconverge.kernel.engine import COMPILED
from reconverge.limit.limit import PACED
from reconverge.simulation.explore.canonical import EPOCH_NS, digest, parts_of
from reconverge.simulation.explore.events import COARSE, FINE, GRAINS, KINDS, POLICIES, Exploration, happen, named
from reconverge.simulation.explore.minimal import replay
from reconverge.simulation.explore.reading import LEFT_OUT
from reconverge.simulation.explore.rewind import Snapshot
from reconverge.simulation.explore.runs import FIELDS
from reconverge.simulation.explore.search import Search
from tests.support.effort import tried

in_python = pytest.mark.skipif(COMPILED, reason="the compiled kernel does not show what its objects hold")


def case_of(
    kind: str, quota: int = 3, policy: str = "strict", grain: str = COARSE, window_s: float = 2.0
) -> Exploration:
    """A case whose requests ask, if requests of its kind can."""
    case = Exploration(kind, quota, policy, asking=True, grain=grain, window_s=window_s)
    return case._replace(asking=case.limit().algorithm not in PACED)


@pytest.mark.skipif(not COMPILED, reason="there is no compiled kernel here")
def test_a_search_with_the_compiled_kernel_is_refused() -> None:
    """It would rewind nothing of it, and end after a few states."""
    with pytest.raises(RuntimeError, match="set RECONVERGE_NO_EXTENSIONS=1"):
        Search(case_of("fixed"))


@pytest.mark.parametrize(
    ("grain", "policy"),
    [
        (FINE, "strict"),
        (COARSE, "balanced"),
        pytest.param(FINE, "balanced", marks=pytest.mark.slow),
        pytest.param(COARSE, "strict", marks=pytest.mark.slow),
    ],
)
def test_no_short_sequence_of_events_breaks_a_promise(grain: str, policy: str) -> None:
    """None of all there are, of each kind of limit; the command goes deeper if it is asked to."""
    arguments = ["--depth", str(tried(2, long=3)), "--policy", policy, "--grain", grain, "--asking", "yes"]
    explored = [sys.executable, "-m", "reconverge.simulation.explore", *arguments, "--processes", "1"]

    ran = subprocess.run(explored, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"\n{len(KINDS)} cases" in ran.stdout


ABOUT_TO_SHARE = [f"--start={name}" for name in ("hits 0", "exchanges 0", "drifts ahead")]
"""Events after which the hub is the first to think that a lease has ended, if leases allow for no drift."""


@pytest.mark.parametrize(
    "more",
    [
        ["--nodes", "3", "--grain", COARSE],
        ["--more", "second key", "--grain", COARSE],
        ["--more", "drifting clocks", "--grain", FINE, *ABOUT_TO_SHARE],
        pytest.param(["--more", "names reversed", "--grain", COARSE], marks=pytest.mark.slow),
    ],
)
def test_nor_does_one_of_more_nodes_or_keys_or_with_drifting_clocks_or_other_names(more: list[str]) -> None:
    """Of some kinds, as there are more events."""
    kinds = [argument for kind in ("fixed", "tokens", "slots") for argument in ("--kind", kind)]
    arguments = ["--depth", str(tried(2, long=3)), "--policy", "strict", "--asking", "yes"]
    explored = [sys.executable, "-m", "reconverge.simulation.explore", *arguments, *kinds, *more, "--processes", "1"]

    ran = subprocess.run(explored, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "\n3 cases" in ran.stdout


def test_a_table_of_searches_is_continued(tmp_path: Path) -> None:
    """A search that stands in it is not made again, and its states are in the sum."""
    table = tmp_path / "explored.tsv"
    command = [sys.executable, "-m", "reconverge.simulation.explore", "--kind", "fixed", "--asking", "no"]
    command += ["--policy", "strict", "--depth", "1", "--processes", "1", "--table", str(table)]

    first = subprocess.run([*command, "--grain", FINE], capture_output=True, text=True, check=True).stdout
    both = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in table.read_text().splitlines()]

    assert list(FIELDS) == rows[0]
    assert "\t".join(rows[1]) in first
    assert "\t".join(rows[1]) not in both
    assert f"2 cases, {int(rows[1][3]) + int(rows[2][3]):,} states" in both


@in_python
def test_the_hub_serves_nodes_that_ask_at_one_moment_by_name() -> None:
    """So states that share a digest may lead to different ones, and to the same ones under names that are reversed."""
    case = Exploration("sliding", 4, "strict", asking=True, grain=FINE)
    search = Search(case)
    place = {event.name: number for number, event in enumerate(search.events)}
    first, again = (
        bytes(place[name] for name in ("silence", "asks all 0", "asks all 1", f"rests long {node}")) for node in (0, 1)
    )
    there, here = (set(search._follow(path).values()) for path in (first, again))

    search._compare(first, again)

    assert there != here
    assert there == set(Search(case.mirrored())._follow(again).values())
    assert not search.found.counterexamples


@in_python
def test_it_does_not_matter_which_names_that_have_gone_were_of_one_process() -> None:
    """A restored process goes on under another name, as does the one that has taken a dead one's place."""
    search = Search(Exploration("first hit", 4, "strict at nodes", asking=False, grain="coarse"), faults_max=3)
    place = {event.name: number for number, event in enumerate(search.events)}
    stories = (("rests long 0", "is restored 0", "leaves 0"), ("rests long 0", "dies 0", "is restored 0", "leaves 0"))
    first, again = (bytes(place[name] for name in story) for story in stories)

    assert search._follow(first) == search._follow(again)


def test_a_lease_that_ends_and_is_renewed_in_one_event_is_noticed_by_the_observer() -> None:
    """Work of a node whose lease has ended may run beside new work, also if the node has a new lease by then."""
    case = case_of("slots", 2, "strict", "coarse", 10.0)

    assert [] == replay(case, "asks for two 1", "rests long 1", "hits all and exchanges 0", "hits 0", asking=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=tried(25, long=4000))
def test_no_long_story_exceeds_a_limit_or_leaves_it_shut(kind: str, data: st.DataObject) -> None:
    """Also not by more than its policy may; and when all has been idle, one node that asks gets all there is."""
    case = case_of(
        kind,
        data.draw(st.sampled_from([2, 3, 5, 6, 16])),
        data.draw(st.sampled_from(tuple(POLICIES))),
        data.draw(st.sampled_from(GRAINS)),
        data.draw(st.sampled_from([2.0, 10.0])),
    )
    story = data.draw(st.lists(st.sampled_from(tuple(named(case.events()))), max_size=14))
    asking = data.draw(st.sampled_from([0, 1]))

    assert [] == replay(case, *story, asking=asking)


STORIES = {
    "a cell that was followed into the next window before that began is begun anew in the one before": (
        case_of("fixed", 2, window_s=10.0),
        ("asks for two 1", "edge", "leaves 1", "loses answer 0", "asks for all 0"),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_no_story_that_was_once_wrong_is_wrong_again(name: str) -> None:
    """Each was found by exploring, and cut down."""
    case, story = STORIES[name]

    assert [] == replay(case, *story)


@pytest.mark.parametrize("kind", ["fixed", "first hit", "sliding"])
def test_what_a_dead_node_held_counts_in_no_window_after_its_lease(kind: str) -> None:
    """However late the hub looks: the first request after a long rest finds the whole quota."""
    for story in (
        ("loses answer 0", "exchanges 0", "dies 0", "asks for all 0", "edge"),
        ("asks for two 0", "hits all and exchanges 1", "dies 1", "edge", "exchanges 0"),
        ("asks for two 1", "evicts 1", "hits all and exchanges 1", "loses request 0", "asks for all 0", "dies 1"),
    ):
        for asking in (0, 1):
            assert [] == replay(case_of(kind), *story, asking=asking)


@pytest.mark.parametrize("kind", ["tokens", "gcra", "interval"])
def test_what_a_dead_node_was_granted_for_asks_drains_though_nobody_reports(kind: str) -> None:
    """From the end of its lease on, as nothing else drains it."""
    story = ("asks for two 0", "asks for two 1", "dies 0", "evicts 0")
    for asking in (0, 1):
        assert [] == replay(case_of(kind, 2), *story, asking=asking)


# ---------------------------------------------------------------- the search itself


def mirrored(name: str) -> str:
    """The name of the same event at the other one of two nodes."""
    other = {"0": "1", "1": "0"}
    return name if name.startswith("late") else name[:-1] + other.get(name[-1], name[-1])


@in_python
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=tried(10, long=300))
def test_a_rewound_world_is_the_world_that_it_was(kind: str, data: st.DataObject) -> None:
    """To every event, as a digest of the world shows."""
    case = case_of(kind, grain=FINE)
    events = case.events()
    steps = st.lists(st.sampled_from(events), max_size=8)
    world = case.world(EPOCH_NS)
    for event in data.draw(steps):
        if event.can(world):
            happen(world, event)
    before, snapshot = digest(world), Snapshot(world)
    after = []
    for _ in range(2):
        for event in data.draw(st.shared(steps, key="after")):
            if event.can(world):
                happen(world, event)
        after.append(digest(world))
        snapshot.restore()

        assert before == digest(world)
    assert after[0] == after[1]


@in_python
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=tried(10, long=300))
def test_when_a_story_begins_and_which_node_is_first_do_not_matter(kind: str, data: st.DataObject) -> None:
    """Its digest is the same some windows later, and with the nodes in each other's place."""
    case = case_of(kind, grain=data.draw(st.sampled_from(GRAINS)))
    story = data.draw(st.lists(st.sampled_from(tuple(named(case.events()))), max_size=8))
    found = set()
    for names, begin_ns in ((story, 0), (story, 60 * SECOND_NS), ([mirrored(name) for name in story], 0)):
        world, events = case.world(EPOCH_NS + begin_ns), named(case.events())
        for name in names:
            if events[name].can(world):
                happen(world, events[name])
        found.add(digest(world))

    assert 1 == len(found)


@in_python
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=tried(10, long=300))
def test_an_event_without_time_changes_no_other_node(kind: str, data: st.DataObject) -> None:
    """So a search may use again what it has read of the others."""
    case = case_of(kind, grain=data.draw(st.sampled_from(GRAINS)), policy=data.draw(st.sampled_from(tuple(POLICIES))))
    events = case.events()
    world = case.world(EPOCH_NS)
    for event in data.draw(st.lists(st.sampled_from(events), max_size=8)):
        before, now_ns = parts_of(world), world.clock.monotonic_ns()
        if event.can(world):
            happen(world, event)
        if world.clock.monotonic_ns() == now_ns:
            assert digest(world) == digest(world, parts_of(world, before, event.node))


@in_python
def test_a_hub_that_loses_a_charge_is_found_though_the_quota_is_there_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Use ends with its window, so a node gets the whole quota, but the hub's count of charges lacks one for ever."""

    def with_one_lost(charged: int, refunded: int) -> Totals:
        return Totals(max(0, charged - 1), refunded)

    monkeypatch.setattr("reconverge.simulation.explore.search.RECOVERY_SHARE", 1)
    sound, faulty = Search(case_of("fixed")), Search(case_of("fixed"))
    sound.deepen()
    monkeypatch.setattr("reconverge_sync.merge.rule.Totals", with_one_lost)

    faulty.deepen()

    assert sound.found.recoveries > 1
    assert [] == sound.found.counterexamples
    first = faulty.found.counterexamples[0]
    assert (("asks for two 0",), ["the hub counts 1 of 2 charges"]) == (first.names, first.problems)
    assert first.problems == replay(first.case, *first.names, asking=first.asking)


@in_python
def test_what_a_digest_leaves_out_is_there() -> None:
    """So that a class or an attribute with a new name is not read by mistake."""
    met: dict[str, object] = {}
    for kind in KINDS:
        case = case_of(kind, grain=FINE)
        world, events = case.world(EPOCH_NS), named(case.events())
        for name in ("hits 0", "exchanges 0"):
            happen(world, events[name])
        met = {type(one).__name__: one for one in Snapshot(world).objects()} | met

    for kind, names in LEFT_OUT.items():
        assert [] == [name for name in names.split() if not hasattr(met[kind], name)]


@in_python
@pytest.mark.parametrize(
    ("names", "others"),
    [
        (("hits 0",), ()),
        (("hits 0",), ("hits 0", "hits 0")),
        (("hits 0", "sends 0"), ("hits 0", "exchanges 0")),
        (("hits 0", "sends 0", "gives up 0"), ("hits 0",)),
        (("hits 0", "exchanges 0", "silence"), ("hits 0", "exchanges 0")),
        (("hits 0", "exchanges 0", "dies 0"), ("hits 0", "exchanges 0", "leaves 0")),
    ],
)
def test_worlds_that_differ_have_different_digests(names: tuple[str, ...], others: tuple[str, ...]) -> None:
    """In use, in what is on its way, in time, and in who is there."""
    case = case_of("fixed", grain=FINE)
    found = []
    for story in (names, others):
        world, events = case.world(EPOCH_NS), named(case.events())
        for name in story:
            happen(world, events[name])
        found.append(digest(world))

    assert found[0] != found[1]
