"""Asks a Redis Cluster which servers own the agents' shards, and examines each of those servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from reconverge.hub.diagnosis import Diagnosis, Finding, Level
from reconverge_sync.cluster.topology import ClusterTopology
from reconverge_sync.redis.connection import Place
from reconverge_sync.redis.diagnosis.advice import as_failure

CLUSTER: Final = "cluster"
EXAMINED_MAX: Final = 32
"""The most servers that a diagnosis examines. If these are healthy, the cluster itself would report a failure of
another one."""
UNEVEN: Final = 2.0
"""If a server has more than this multiple of an even share of the shards, a finding suggests more shards."""

Examine = Callable[[Place, int], Awaitable[Diagnosis]]
"""A function that examines the server at a place, with trial exchanges in the shard of the given number, which that
server owns."""


async def diagnose_cluster(
    owners: ClusterTopology, named: Sequence[Place], examine: Examine, *, shards: int
) -> Diagnosis:
    """Examines the servers of a cluster that own shards of the hub, and returns the findings.

    `named` are the places in the URL; `examine` examines one server.
    """
    try:
        found = await owners.places()
    except Exception as error:  # noqa: BLE001  # the first of the servers tells more about any error
        failure = as_failure(error, encrypted=False)
        diagnosis = await examine(named[0], 0)
        fact = f"could not find out which server owns which slots: {failure.text}"
        cluster = Finding(CLUSTER, Level.PROBLEM, fact, "See below what the first of the servers says.")
        return replace(diagnosis, findings=[cluster, *diagnosis.findings])
    examined = {place: await examine(place, its[0]) for place, its in list(found.items())[:EXAMINED_MAX]}
    if not examined:
        return Diagnosis([_judge(found, shards)])
    first, *others = examined.items()
    findings = [_judge(found, shards), *first[1].findings]
    for place, diagnosis in others:
        findings += _what_is_wrong(place, diagnosis)
    return replace(first[1], findings=findings)


def _judge(found: Mapping[Place, Sequence[int]], shards: int) -> Finding:
    owned = sum(map(len, found.values()))
    if owned < shards:
        fact = f"{shards - owned} of {shards} shards are in slots that no server owns"
        return Finding(CLUSTER, Level.PROBLEM, fact, "Repair the cluster:\n  redis-cli --cluster fix HOST:PORT")
    most = max(map(len, found.values()))
    fact = f"{shards} shards, in slots of {len(found)} servers; at most {most} with one"
    if most * len(found) >= UNEVEN * shards and len(found) > 1:
        remedy = "More shards spread better; all agents must name the same number, and begin anew with another:\n"
        return Finding(CLUSTER, Level.WARNING, fact, f"{remedy}  ?shards={2 * shards}")
    return Finding(CLUSTER, Level.OK, fact)


def _what_is_wrong(place: Place, diagnosis: Diagnosis) -> Iterator[Finding]:
    """Yields each finding about one server that is a warning or a problem, with `place` before its text."""
    for finding in diagnosis.findings:
        if finding.level is not Level.OK:
            yield replace(finding, fact=f"{place}: {finding.fact}")
