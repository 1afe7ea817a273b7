"""How far away a hub is, and what that means for the agents' settings."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat

import pytest

from reconverge.cli.doctor import checkup
from reconverge.cli.doctor.checkup import Checkup, CheckupIntervals, check_up
from reconverge.clock import MILLISECOND_NS, ManualClock
from reconverge.hub.checking.probe import EXCHANGES_MAX
from reconverge.hub.diagnosis import Diagnosis, Finding, Level
from reconverge.hub.report import Answer, Batch
from reconverge_sync.memory import MemoryHub

DEFAULTS = CheckupIntervals(sync_interval_s=0.1, timeout_s=1.0)


class DistantHub(MemoryHub):
    """A hub with a clock of its own, to which a round trip takes time, which passes on both."""

    def __init__(self, *trips_ms: float, ahead_s: float = 0.0) -> None:
        self.here, self._there = ManualClock(1_000_000.0), ManualClock(1_000_000.0 + ahead_s)
        super().__init__(clock=self._there)
        self._trips_ms = chain(trips_ms, repeat(trips_ms[-1]))
        self.exchanged = 0

    async def exchange(self, batch: Batch) -> Answer:
        """Half of the trip there, half of it back."""
        half_ns = round(next(self._trips_ms) * MILLISECOND_NS) // 2
        self._pass(half_ns)
        answer = await super().exchange(batch)
        self._pass(half_ns)
        self.exchanged += 1
        return answer

    def _pass(self, nanoseconds: int) -> None:
        self.here.advance_ns(nanoseconds)
        self._there.advance_ns(nanoseconds)


def check(hub: DistantHub, pace: CheckupIntervals = DEFAULTS) -> Checkup:
    return asyncio.run(check_up(hub, pace, hub.here))


def found(hub: DistantHub, name: str, pace: CheckupIntervals = DEFAULTS) -> Finding:
    (finding,) = [finding for finding in check(hub, pace).findings if finding.check == name]
    return finding


@pytest.mark.parametrize(
    ("trip_ms", "level"),
    [(0.0, "ok"), (0.2, "ok"), (50, "ok"), (50.1, "warning"), (500, "warning"), (500.1, "problem"), (9000, "problem")],
)
def test_a_round_trip_is_judged_by_the_agents_settings(trip_ms: float, level: str) -> None:
    """Longer than half of an interval is worth a warning; than half of the time an exchange may take, a problem."""
    assert level == found(DistantHub(trip_ms), "round trip").level


def test_other_settings_mend_a_distant_hub() -> None:
    """Each remedy names a value, and with that value there is nothing left to say."""
    hub_ms = 700.0
    problem = found(DistantHub(hub_ms), "round trip")
    warning = found(DistantHub(hub_ms), "round trip", CheckupIntervals(0.1, 3.0))

    assert "set exchange_timeout=3 or more" in problem.remedy
    assert "set sync_interval=2 or more" in warning.remedy
    assert Level.OK is found(DistantHub(hub_ms), "round trip", CheckupIntervals(2.0, 3.0)).level


def test_one_late_answer_is_no_more_than_a_warning() -> None:
    """The usual trip decides; the worst is told."""
    finding = found(DistantHub(*[10.0] * 5, 600.0, 10.0), "round trip")

    assert Level.WARNING is finding.level
    assert "exchange 10 ms (worst 600); the worst is long for an exchange_timeout of 1 s" == finding.fact


def test_the_first_trip_does_not_count() -> None:
    """It connects, which an agent does once."""
    checked = check(DistantHub(600.0, 10.0))

    assert 10.0 == checked.round_trip_ms
    assert "exchange 10 ms (worst 10)" in [finding.fact for finding in checked.findings]


def test_a_very_distant_hub_is_asked_less_often() -> None:
    """Two seconds are enough for an impression."""
    near, far = DistantHub(1.0), DistantHub(900.0)
    check(near)
    check(far)

    assert EXCHANGES_MAX + 2 == near.exchanged
    assert 5 == far.exchanged


@pytest.mark.parametrize("ahead_s", [0.25, -0.25])
def test_an_offset_below_a_second_is_measured_and_called_harmless(ahead_s: float) -> None:
    """The sign says whose clock is ahead; windows follow the hub's."""
    hub = DistantHub(10.0, ahead_s=ahead_s)
    checked = check(hub)
    (clock,) = [finding for finding in checked.findings if finding.check == "clock"]

    assert pytest.approx(1000 * ahead_s, abs=0.01) == checked.clock_offset_ms
    assert Level.OK is clock.level
    assert f"250 ms {'ahead of' if ahead_s > 0 else 'behind'} this machine's" in clock.fact
    assert "harmless" in clock.fact


def test_an_offset_that_spoils_logs_is_warned_of() -> None:
    """More than a second apart, though limits hold all the same."""
    finding = found(DistantHub(1.0, ahead_s=3600.0), "clock")

    assert Level.WARNING is finding.level
    assert "3,600.0 s ahead of this machine's" in finding.fact
    assert finding.remedy.startswith("Limits hold all the same")


def test_an_offset_within_its_own_error_is_not_made_up() -> None:
    """An offset that cannot be told from zero is not called a difference."""
    assert "agree to within" in found(DistantHub(100.0, ahead_s=0.01), "clock").fact


@pytest.mark.parametrize(("trip_ms", "level"), [(99, "ok"), (101, "warning"), (2000, "warning")])
def test_a_clock_that_cannot_be_read_well_blurs_short_windows(trip_ms: float, level: str) -> None:
    """It is known to within half of a round trip; 50 ms are a twentieth of a second's window."""
    assert level == found(DistantHub(trip_ms), "clock").level


def test_the_shortest_sensible_window_is_named() -> None:
    """With an error of one second, twenty times as much."""
    assert "no windows shorter than 30 s" in found(DistantHub(2000.0), "clock").remedy


class SelfAbsorbedHub(DistantHub):
    """Diagnoses itself for ever."""

    async def diagnose(self) -> Diagnosis:
        await asyncio.Event().wait()
        raise AssertionError


def test_a_hub_that_never_comes_to_an_end_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command must not hang because a hub does."""
    monkeypatch.setattr(checkup, "CHECKUP_S_MAX", 0.01)

    (finding,) = check(SelfAbsorbedHub(1.0)).findings

    assert Level.PROBLEM is finding.level
    assert "did not come to an end within 0.01 s" == finding.fact


class TalkativeHub(DistantHub):
    """Says of itself whatever it is told to."""

    def __init__(self, *levels: Level) -> None:
        super().__init__(1.0)
        self._levels = levels

    async def diagnose(self) -> Diagnosis:
        return Diagnosis([Finding("mood", level, "as told") for level in self._levels])


def test_a_diagnosable_hub_speaks_for_itself() -> None:
    """It is not exchanged with beside that, and what it could not measure is not made up."""
    hub = TalkativeHub(Level.OK, Level.WARNING)

    checked = check(hub)

    assert ["mood", "mood"] == [finding.check for finding in checked.findings]
    assert 0 == hub.exchanged
    assert (None, None) == (checked.round_trip_ms, checked.clock_offset_ms)
    assert checked.ok


def test_one_problem_makes_the_whole_a_problem() -> None:
    """However many checks passed."""
    assert not check(TalkativeHub(Level.OK, Level.PROBLEM, Level.OK)).ok
