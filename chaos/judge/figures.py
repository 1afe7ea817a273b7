"""The figures of a run, for people: no judgement depends on them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

from chaos.judge.case import Case
from chaos.judge.checker import agreed, all_heard, excesses, least_and_most
from chaos.judge.expectations import ages_of_others_s
from chaos.judge.history import OK, Decide, Part
from chaos.judge.slots import slot_figures
from reconverge.clock import MILLISECOND_NS, SECOND_NS

BIN_NS: Final = 100 * MILLISECOND_NS


def figures(case: Case) -> dict[str, Any]:
    """Returns all figures."""
    excess, bounds = excesses(case)
    known = {place: over for place, over in excess.items() if not bounds.cold(place)}
    least, most = least_and_most(case)
    heard_ns, agreed_ns = all_heard(case, case.healed_ns), agreed(case)
    quiet_ns = max(case.healed_ns, case.load_end_ns)
    bad = [one for one in case.decisions if case.in_spell(one.t_ns)]
    good = [one for one in case.decisions if not case.in_spell(one.t_ns)]
    return {
        "decisions": len(case.decisions),
        "admitted": sum(one.cost for one in case.decisions if one.allowed),
        "over_admission": max(excess.values(), default=0),
        "over_admission_known": max(known.values(), default=0),
        "hub_total": case.final.total,
        "hub_total_least": least,
        "hub_total_most": most,
        "heard_again_s": None if heard_ns is None else _seconds(heard_ns - case.healed_ns),
        "agreed_s": None if agreed_ns is None else _seconds(max(0, agreed_ns - quiet_ns)),
        "staleness_max_s": _staleness_max_s(case),
        "exchanges": dict(Counter(one.outcome for one in case.exchanges)),
        "failures": dict(Counter(one.kind for one in case.exchanges if one.outcome != OK)),
        "lives": len(case.lives),
        "killed": sum(life.facts is None for life in case.lives),
        "rss_max_mb": max(((life.facts or {}).get("rss_kb", 0) for life in case.lives), default=0) // 1024,
        "other_shards": _other_shards(case),
        "late_max_ms": case.late_ns(after_ns=case.start_ns) // MILLISECOND_NS,
        "decisions_good": _decisions(good, _good_s(case)),
        "decisions_bad": _decisions(bad, sum(end - begin for begin, end in case.spells) / SECOND_NS),
        "asks": _asks(case),
        "slots": slot_figures(case),
    }


def series(case: Case) -> dict[str, Any]:
    """Returns the values of a picture: admitted cost by window of the busiest key, and staleness."""
    asked: Counter[str] = Counter()
    for one in case.decisions:
        asked[one.key] += 0 if one.summed else one.cost
    key = max(asked, key=lambda key: asked[key], default="")
    windows: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    begins_ns: dict[int, int] = {}
    for one in case.decisions:
        if one.key == key:
            epoch, moment_ns = case.place_of(one)
            windows[epoch][0] += one.cost
            windows[epoch][1] += one.cost if one.allowed else 0
            # Threads that had to wait read the clock later.
            begins_ns.setdefault(epoch, one.t_ns + one.took_ns - (moment_ns - epoch * case.limit.window_ns))
    return {
        "key": key,
        "windows": [
            {"t_s": _seconds(begins_ns[epoch] - case.start_ns), "asked": asked_cost, "admitted": admitted}
            for epoch, (asked_cost, admitted) in sorted(windows.items(), key=lambda item: begins_ns[item[0]])
        ],
        "staleness": _staleness(case),
    }


def _decisions(decisions: Sequence[Decide], seconds: float) -> dict[str, Any]:
    took_ns = sorted(one.took_ns for one in decisions if one.took_ns)
    if not took_ns or seconds <= 0:
        return {}
    return {
        "rate": round(len(took_ns) / seconds),
        "p50_us": took_ns[len(took_ns) // 2] / 1000,
        "p99_us": took_ns[len(took_ns) * 99 // 100] / 1000,
        "max_us": took_ns[-1] / 1000,
    }


def _asks(case: Case) -> dict[str, Any]:
    """Returns the times of requests that may ask, and the delays of an application without a limiter, in ms."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for life in case.lives:
        for beside in life.beside:
            when = "bad" if case.in_spell(beside.t_ns) else "good"
            times[f"without a limiter, {when} times"].append(beside.late_ns / MILLISECOND_NS)
        for one in life.decisions if life.beside else ():
            when = "bad" if case.in_spell(one.t_ns) else "good"
            times[f"asked, {when} times"].append(one.took_ns / MILLISECOND_NS)
            times[f"asked and waited, {when} times"] += [one.took_ns / MILLISECOND_NS] * one.waited
    return {
        name: {
            "requests": len(times_ms),
            **{f"p{share}": round(_quantile(times_ms, share), 2) for share in (50, 99)},
            "max": round(max(times_ms), 2),
        }
        for name, times_ms in sorted(times.items())
        if times_ms
    }


def _good_s(case: Case) -> float:
    """Returns the seconds of load without a fault."""
    bad_ns = sum(min(end, case.load_end_ns) - min(begin, case.load_end_ns) for begin, end in case.spells)
    return (case.load_end_ns - case.start_ns - bad_ns) / SECOND_NS


def _staleness(case: Case) -> list[list[float]]:
    """Returns the oldest knowledge of any node, by time."""
    oldest: dict[int, float] = {}
    for life in case.lives:
        for view in life.views:
            if case.start_ns <= view.t_ns <= case.end_ns and isfinite(view.staleness_s):
                at = (view.t_ns - case.start_ns) // BIN_NS
                oldest[at] = max(oldest.get(at, 0.0), view.staleness_s)
    return [[round(at * BIN_NS / SECOND_NS, 1), round(age_s, 3)] for at, age_s in sorted(oldest.items())]


def _staleness_max_s(case: Case) -> float:
    return max((age_s for _, age_s in _staleness(case)), default=0.0)


def _other_shards(case: Case) -> dict[str, Any]:
    """Returns the ages of knowledge of healthy shards, in intervals: during faults of other shards, and without."""
    parts: defaultdict[str, list[float]] = defaultdict(list)
    if case.parts:
        # The first second is left out: shards without requests so far are seldom exchanged with.
        begin_ns = case.start_ns + SECOND_NS
        for part in sorted((*case.parts, Part("", case.load_end_ns, 0, frozenset())), key=lambda part: part.begin_ns):
            parts["all is well"] += ages_of_others_s(case, Part("", begin_ns, part.begin_ns, frozenset()))
            begin_ns = part.end_ns + case.reconverges_in_ns
    for part in case.parts:
        parts[part.name] += ages_of_others_s(case, part)
    interval_s = case.interval_ns / SECOND_NS
    return {
        name: {
            "looks": len(ages_s),
            **{f"p{share}": round(_quantile(ages_s, share) / interval_s, 2) for share in (50, 99)},
            "max": round(max(ages_s) / interval_s, 2),
        }
        for name, ages_s in parts.items()
        if ages_s
    }


def _quantile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]


def _seconds(ns: int) -> float:
    return round(ns / SECOND_NS, 3)
