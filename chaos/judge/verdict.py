"""The result of a run: whether our agents kept all promises, and whether every rival was caught."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chaos.judge.case import Case, Violation
from chaos.judge.checker import violations
from chaos.judge.figures import figures, series
from chaos.names import OURS
from chaos.scenarios.scenario import Scenario
from chaos.supervisor import Record
from reconverge.clock import SECOND_NS


@dataclass(slots=True)
class Verdict:
    """The judgement on one scenario, run with one seed."""

    scenario: Scenario
    seed: int
    found: dict[str, list[Violation]] = field(default_factory=dict)
    """The violations by contestant."""
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    series: dict[str, dict[str, Any]] = field(default_factory=dict)
    spells: list[list[float]] = field(default_factory=list)
    load_end_s: float = 0.0

    def add(self, record: Record) -> None:
        """Judges all contestants of a run."""
        for who in record.contestants:
            case = case_of(record, who)
            self.found[who] = violations(case)
            for expectation in record.scenario.expectations:
                self.found[who] += expectation(case)
            self.figures[who] = {**figures(case), "noted": dict(record.noted), **_last_facts(case)}
            self.series[who] = series(case)
            if who != OURS:
                del self.series[who]["staleness"]
        if OURS in record.contestants:
            self.spells = [[_s(moment - record.start_ns) for moment in spell] for spell in spells_of(record)]
            self.load_end_s = _s(record.load_end_ns - record.start_ns)

    @property
    def kept(self) -> bool:
        """Returns whether our agents kept all promises."""
        return not self.found[OURS]

    @property
    def missed(self) -> list[str]:
        """Returns the rivals that were not caught at the expected violation."""
        return [
            f"{rival.name} was not caught at {rival.caught_at}"
            for rival in self.scenario.rivals
            if rival.caught_at not in {violation.kind for violation in self.found.get(rival.name, ())}
        ]

    @property
    def passed(self) -> bool:
        """Returns whether the scenario shows what it is to show."""
        return self.kept and not self.missed

    def as_json(self) -> dict[str, Any]:
        """Returns the verdict for a JSON file."""
        scenario = self.scenario
        return {
            "scenario": scenario.name,
            "number": scenario.number,
            "claim": scenario.claim,
            "seed": self.seed,
            "passed": self.passed,
            "limit": str(scenario.limit),
            "capacity": scenario.limit.capacity,
            "quota": scenario.limit.quota,
            "bucket": scenario.limit.bucket,
            "window_s": scenario.limit.window,
            "deployment": scenario.deployment,
            "guarded": scenario.guarded,
            "policy": scenario.policy_name,
            "nodes": scenario.nodes * scenario.agents,
            "interval_s": scenario.interval_s,
            "over_admission_max": scenario.over_admission_max,
            "beyond_why": scenario.beyond_why,
            "reconverges_in_s": round(scenario.reconverges_in_s, 3),
            "spells": self.spells,
            "load_end_s": self.load_end_s,
            "ours": [violation._asdict() for violation in self.found[OURS]],
            "rivals": [
                {
                    "name": rival.name,
                    "to_be_caught_at": rival.caught_at,
                    "caught_at": sorted({violation.kind for violation in self.found.get(rival.name, ())}),
                    "words": [
                        violation.words
                        for violation in self.found.get(rival.name, ())
                        if violation.kind == rival.caught_at
                    ],
                }
                for rival in scenario.rivals
            ],
            "figures": self.figures,
            "series": self.series,
        }


def _last_facts(case: Case) -> dict[str, Any]:
    """Returns the figures of the end that only some scenarios have."""
    found: dict[str, Any] = {}
    for name in ("stranger", "storm"):
        said = {life.node: facts[name] for life in case.lives if (facts := life.facts or {}).get(name)}
        if said:
            found[name] = said
    return found


def case_of(record: Record, who: str) -> Case:
    """Returns the checker's input for one contestant of a run."""
    scenario = record.scenario
    return Case(
        limit=scenario.limit,
        policy=scenario.policy,
        members=scenario.members,
        lives=[life for life in record.lives if life.who == who],
        final=record.finals[who],
        sights=record.sights[who],
        beyond=scenario.beyond,
        interval_ns=round(scenario.interval_s * SECOND_NS),
        silence_ns=round(scenario.silence_s * SECOND_NS),
        interval_min_ns=round(scenario.interval_s * SECOND_NS) // 10,
        timeout_ns=round(scenario.timeout_s * SECOND_NS),
        reconverges_in_ns=round(scenario.reconverges_in_s * SECOND_NS),
        reckoning=scenario.reckoning,
        outage=scenario.outage,
        mute=scenario.mute,
        loses_data=scenario.loses_data,
        slots=scenario.slots,
        slots_beyond=scenario.slots_beyond,
        slots_lease_ns=round(scenario.slots_lease_s * SECOND_NS),
        start_ns=record.start_ns,
        load_end_ns=record.load_end_ns,
        end_ns=record.end_ns,
        spells=spells_of(record),
        parts=tuple(record.parts),
        shards=record.shards,
        noted=record.noted,
        leaks=tuple(record.leaks),
        hangs=tuple(record.hangs),
    )


def spells_of(record: Record) -> tuple[tuple[int, int], ...]:
    """Returns the times of all faults; overlapping ones are joined."""
    united: list[tuple[int, int]] = []
    for begin_ns, end_ns in sorted((begin_ns, end_ns) for begin_ns, end_ns, shown in record.spells if shown):
        if united and begin_ns <= united[-1][1]:
            united[-1] = united[-1][0], max(united[-1][1], end_ns)
        else:
            united.append((begin_ns, end_ns))
    return tuple(united)


def _s(ns: int) -> float:
    return round(ns / SECOND_NS, 3)
