"""Goal: a node that is full decides about a key without room as quickly as about any other, and what is idle leaves.

Method: nodes with room for few keys in virtual time, and a count of the decisions that the compiled kernel leaves to
Python, which take ten times as long.
"""

from __future__ import annotations

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel import Kernel, Table
from reconverge.kernel.table.lookup import OTHERS_PASSED
from reconverge.limit import FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import BALANCED, STRICT
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

KEYS = 20
MOST = 600_000
"""The use of a key that may not leave a node without a hub: more than half of its quota, a million."""
WINDOW_S = 60.0


class Full:
    """A node that has as many keys as it may have, and some limits."""

    def __init__(
        self, *, limits: int = 1, alone: bool = False, algorithm: str = SLIDING_WINDOW, policy: str = "balanced"
    ) -> None:
        self.clock = ManualClock(START_S)
        self.kernel = Kernel(
            self.clock,
            namespace="test",
            interval_ns=INTERVAL_NS,
            interval_min_ns=INTERVAL_NS // 10,
            keys_max=KEYS,
            key_bytes_max=256,
            alone=alone,
        )
        limit = Limit(10**6, WINDOW_S, algorithm=algorithm)
        chosen = STRICT if policy == "strict" else BALANCED
        self.tables: list[Table] = [self.kernel.declare(f"limit {each}", limit, chosen) for each in range(limits)]
        self.in_python = 0
        """How many decisions have been made in Python."""

    def fills_up(self, table: Table, uses: int = MOST, *, but: int = 0) -> None:
        """Keys come until there is room for no more, and one that finds none; or so many fewer."""
        for number in range(KEYS + 1 - but):
            table.allow(f"made-up {number}", uses)

    def counts_decisions_in_python(self, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        """Note from now on whenever one is made there."""
        allow_at = table.allow_at

        def noted(key: str, cost: int, now_ns: int) -> bool:
            self.in_python += 1
            return allow_at(key, cost, now_ns)

        monkeypatch.setattr(table, "allow_at", noted)


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in company"])
@pytest.mark.parametrize("algorithm", [FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET])
@pytest.mark.parametrize("limits", [1, 3])
def test_a_decision_without_room_is_compiled_as_long_as_all_keys_stay(
    algorithm: str, limits: int, *, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are in use, whether they were asked about just now or a while ago."""
    full = Full(limits=limits, alone=alone, algorithm=algorithm)
    table = full.tables[0]
    full.fills_up(table)
    full.counts_decisions_in_python(table, monkeypatch)

    for number in range(50):
        table.allow(f"beyond {number}")
        full.clock.advance_ns(SECOND_NS // 10)

    assert 0 == full.in_python
    assert 51 == table.overflowed
    assert KEYS == full.kernel.keys


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize(
    ("alone", "algorithm"),
    [
        (True, FIXED_WINDOW),
        (True, SLIDING_WINDOW),
        (True, TOKEN_BUCKET),
        (False, FIXED_WINDOW),
        (False, SLIDING_WINDOW),
    ],
)
@pytest.mark.parametrize("limits", [1, 3])
@pytest.mark.parametrize("overflows", [True, False])
def test_a_decision_for_which_an_idle_key_leaves_is_compiled(
    algorithm: str, limits: int, *, overflows: bool, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is, whether or not a key has found no room before; and a key leaves for each that comes."""
    full = Full(limits=limits, alone=alone, algorithm=algorithm)
    table = full.tables[0]
    full.fills_up(table, but=0 if overflows else 1)
    full.clock.advance_ns(round(2.5 * WINDOW_S) * SECOND_NS)
    full.counts_decisions_in_python(table, monkeypatch)

    for number in range(KEYS // 2):
        table.allow(f"newcomer {number}")

    assert 0 == full.in_python
    assert [True] * (KEYS // 2) == [f"newcomer {number}" in table.cells for number in range(KEYS // 2)]
    assert int(overflows) == table.overflowed
    assert full.kernel.keys == len(table.cells) <= KEYS
    assert (0 if alone else KEYS // 2) <= table.left_early


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("algorithm", [FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET])
@pytest.mark.parametrize("limits", [1, 3])
def test_a_decision_for_which_a_key_in_use_leaves_is_compiled(
    algorithm: str, limits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a hub, one for each newcomer; but for the first key of a limit that has none which could leave."""
    full = Full(limits=limits, alone=True, algorithm=algorithm)
    full.fills_up(full.tables[0], uses=1, but=1)
    full.counts_decisions_in_python(full.tables[-1], monkeypatch)

    for number in range(KEYS):
        full.tables[-1].allow(f"newcomer {number}")

    assert int(limits > 1) == full.in_python
    assert KEYS == sum(table.left_early for table in full.tables)
    assert KEYS == full.kernel.keys


def full_of_ada_and_bob(algorithm: str = SLIDING_WINDOW) -> tuple[Table, int]:
    """Returns the table of a node that has exchanged two keys and may have no third, and the present moment."""
    clock = ManualClock(START_S)
    hub, node = MemoryHub(clock=clock), SmallNode(clock)
    table = node.limit(Limit(1000, 2.0, algorithm=algorithm), BALANCED)
    for key in ("ada", "bob"):
        table.allow(key)
    for _ in range(40):
        node.exchanges_with(hub)
        clock.advance_ns(INTERVAL_NS)
    node.kernel.keys_max = 2
    return table, clock.monotonic_ns()


@pytest.mark.parametrize("algorithm", [FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET])
@pytest.mark.parametrize(("ago_s", "remembered"), [(3, True), (5, False)])
def test_a_key_that_leaves_a_full_node_is_remembered_if_it_was_asked_about_within_two_windows(
    ago_s: int, algorithm: str, *, remembered: bool
) -> None:
    """When it comes back, it has no allowance for being new."""
    table, now_ns = full_of_ada_and_bob(algorithm)
    cell = table.cells["ada"]
    cell.allowance = cell.base = cell.overdraft = 0  # all of its allowance is given back
    cell.held = False
    cell.touched_ns = now_ns - ago_s * SECOND_NS

    table.allow("eve")

    assert "eve" in table.cells
    assert "ada" not in table.cells
    assert (remembered, remembered) == (table.evicted.recall("ada", now_ns), now_ns == table.cells.let_go_ns)


@pytest.mark.parametrize("answered", [True, False])
def test_a_key_whose_report_waits_for_its_answer_stays_on_a_full_node(*, answered: bool) -> None:
    """The answer is about it; once that is in, the key leaves for one that is asked about."""
    table, now_ns = full_of_ada_and_bob()
    for key in ("ada", "bob"):
        cell = table.cells[key]
        cell.allowance = cell.base = cell.overdraft = (
            0  # all of its allowance is given back, in the report that is under way
        )
        cell.held = False
        cell.touched_ns, cell.reported_ns = now_ns - 3 * SECOND_NS, now_ns - INTERVAL_NS
    if not answered:
        table.cells["ada"].shard.under_way_ns = now_ns - INTERVAL_NS

    table.allow("eve")

    assert answered == ("eve" in table.cells)
    assert answered == ("ada" not in table.cells or "bob" not in table.cells)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in company"])
def test_idle_keys_of_another_limit_leave_however_many_limits_have_none(*, alone: bool) -> None:
    """A decision looks at a few limits only, and the next one goes on from there."""
    full = Full(alone=alone, limits=5 * OTHERS_PASSED)
    crowded, asked = full.tables[3 * OTHERS_PASSED], full.tables[-1]
    full.fills_up(crowded)
    full.clock.advance_ns(round(2.5 * WINDOW_S) * SECOND_NS)

    for number in range(2 * OTHERS_PASSED + 1):
        asked.allow(f"key {number}")

    assert len(asked.cells) > 0
    assert len(crowded.cells) < KEYS


def test_what_a_strict_limit_refuses_for_want_of_room_is_not_reported() -> None:
    """The cell of the keys beyond the cap counts nothing there, so the hub need not hear of it."""
    full = Full(policy="strict")
    (table,) = full.tables
    full.fills_up(table)

    admitted = [table.allow(f"beyond {number}") for number in range(10)]

    assert [False] * 10 == admitted
    assert table.overflow is not None
    assert not table.overflow.dirty
    assert not table.overflow.urgent
