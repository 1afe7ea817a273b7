"""Histories made by hand, for the judge to judge: a story is told event by event, and becomes a case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from chaos.judge.case import Case, Expectation
from chaos.judge.checker import violations
from chaos.judge.history import OK, Ages, Asked, Decide, Exchange, Late, Life, Sight, View
from reconverge.clock import SECOND_NS
from reconverge.limit import FIXED_WINDOW, Limit
from reconverge.policies import choose

QUOTA: Final = 10
STRICT: Final = choose("strict")
EPOCH: Final = 1_750_000_000
"""The window that a story begins with."""


def ns(seconds: float) -> int:
    """A moment of a story."""
    return round(seconds * SECOND_NS)


class Story:
    """Nodes that decide and exchange. Times are seconds after the start; windows last one."""

    def __init__(self, nodes: int = 2) -> None:
        self.lives = [Life("ours", node, pid=100 + node, facts={}) for node in range(nodes)]

    def admits(self, node: int, at_s: float, cost: int = 1, **changes: Any) -> None:
        t_ns = ns(at_s)
        wall_ns = EPOCH * SECOND_NS + t_ns
        decision = Decide(t_ns, 5_000, "ada", cost, True, wall_ns // SECOND_NS, wall_ns, wall_ns, known=True)
        self.lives[node].decisions.append(decision._replace(**changes))

    def exchanges(
        self,
        node: int,
        at_s: float,
        *,
        charged: int | None,
        took_s: float = 0.01,
        outcome: str = OK,
        kind: str = "",
        shard: int = 0,
    ) -> None:
        """A node says what it has admitted so far."""
        account = f"account-{self.lives[node].pid}" + f"-{shard}" * (shard > 0)
        one = Exchange(ns(at_s), ns(at_s + took_s), account, charged, outcome, kind, lease=(0, shard))
        self.lives[node].exchanges.append(one)

    def knows(self, node: int, at_s: float, total: int, staleness_s: float = 0.05) -> None:
        """A node thinks that so much was admitted by all."""
        self.lives[node].views.append(View(ns(at_s), total, staleness_s))

    def knows_shards(self, node: int, at_s: float, *ages_s: float) -> None:
        """A node's knowledge of each shard is so old."""
        self.lives[node].ages.append(Ages(ns(at_s), ages_s))

    def is_asked(self, node: int, at_s: float, *, epoch: int, total: int) -> None:
        """Somebody asks a node what was used of a window."""
        self.lives[node].asked.append(Asked(ns(at_s), "ada", epoch, total))

    def is_late(self, node: int, at_s: float, late_s: float) -> None:
        """The machine held a node up."""
        self.lives[node].late.append(Late(ns(at_s), ns(late_s)))

    def case(self, total: int, **changes: Any) -> Case:
        """The story as it came out: in the end the hub knew of that total."""
        case = Case(
            limit=Limit(QUOTA, 1.0, algorithm=FIXED_WINDOW),
            policy=STRICT,
            members=len(self.lives),
            lives=self.lives,
            final=Sight(ns(9.0), ns(9.1), total),
            interval_ns=ns(0.1),
            interval_min_ns=ns(0.01),
            reconverges_in_ns=ns(1.5),
            load_end_ns=ns(5.0),
            end_ns=ns(8.0),
            spells=((ns(2.0), ns(3.0)),),
        )
        return replace(case, **changes)


def good_story() -> Story:
    """Two nodes admit six, exchange before an outage, in vain during it and again after it, and agree in the end."""
    story = Story()
    for node in range(2):
        story.admits(node, 0.5)
        story.exchanges(node, 0.6, charged=1)
        story.exchanges(node, 2.4, charged=1, took_s=0.3, outcome="unknown", kind="timeout")
        story.admits(node, 2.5)
        story.exchanges(node, 3.2, charged=2)
        story.admits(node, 4.0)
        story.exchanges(node, 4.1, charged=3)
        story.exchanges(node, 4.6, charged=3)
        story.knows(node, 4.2, 5)
        story.knows(node, 5.2, 6)
        story.knows(node, 7.9, 6)
    return story


def kinds(case: Case) -> set[str]:
    """Returns the kinds of violations that the judge finds."""
    return {violation.kind for violation in violations(case)}


def meets(expectation: Expectation, case: Case) -> bool:
    return not list(expectation(case))
