"""How the adaptive limits answer steps, ramps and noise, in front of a simulated pool of workers.

The pool has ten workers of 50 ms, so it serves 200 requests a second, and by Little's law needs ten in progress.
Expected is what Netflix documents: Vegas keeps the queue between alpha and beta, Gradient2 keeps round trips within its
tolerance of 1.5, AIMD swings below the timeout; all serve what the pool can.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from bench.shedding.loaded_service import LoadStream, ServedRequest, Service, goodput, rejected_by_second
from reconverge.shedding import Aimd, Gradient2, Vegas
from reconverge.shedding.adaptive.algorithms import Algorithm
from tests.support.shed import PREFETCH, USER, AdaptiveGate, mean_between, mean_latency_s, served_per_second

MAKERS: dict[str, Callable[[], Algorithm]] = {
    "gradient2": Gradient2,
    "vegas": Vegas,
    "aimd": lambda: Aimd(timeout=0.2),
}
LATENCY_MAX_S = {"gradient2": 0.11, "vegas": 0.11, "aimd": 0.21}
"""The mean time of a request beside 50 ms without a queue: 1.5 times that, and half a queue of 4; the timeout."""


def run(
    algorithm: Algorithm,
    rate: Callable[[float], float],
    service_s: Callable[[float], float],
    seconds: float,
    *,
    spread: float = 0.5,
    users: Callable[[float], float] = lambda _: 0.0,
) -> tuple[AdaptiveGate, list[ServedRequest]]:
    gate = AdaptiveGate(algorithm)
    streams = [LoadStream(USER, users), LoadStream(PREFETCH, rate)]
    service = Service(gate, streams, service_s, Random(7), workers=10, loop=False, spread=spread)
    return gate, service.run(seconds)


@pytest.mark.parametrize("name", MAKERS)
class TestResponses:
    """Each of the three, in front of the same pool."""

    def test_twice_the_capacity_is_served_as_far_as_it_goes(self, name: str) -> None:
        """At 400 requests a second 95 % of the capacity is served, and the queue stays short, for a hundred seconds."""
        _, requests = run(MAKERS[name](), lambda _: 400, lambda _: 0.05, 100)

        for since in (20, 50, 75):
            assert 190 < served_per_second(requests, since, since + 20)
            assert LATENCY_MAX_S[name] > mean_latency_s(requests, since, since + 20)

    def test_a_step_down_and_up_is_followed(self, name: str) -> None:
        """Work that takes twice as long for 30 s is served at 90 % of half the capacity, and then at 90 % of it all."""
        _, requests = run(MAKERS[name](), lambda _: 400, lambda t: 0.1 if 20 <= t < 50 else 0.05, 80)

        assert 90 < served_per_second(requests, 30, 50)
        assert 180 < served_per_second(requests, 60, 80)

    def test_a_ramp_is_served_until_the_pool_is_full(self, name: str) -> None:
        """A load that rises from 50 to 400 a second is served whole up to 80 % of the capacity, and to 95 % later."""
        _, requests = run(MAKERS[name](), lambda t: 50 + 350 * min(1.0, t / 70), lambda _: 0.05, 100)
        before = [each for each in requests if each.arrived_ns < 20e9]

        assert 0.99 < sum(not each.rejected for each in before) / len(before)
        assert 190 < served_per_second(requests, 75, 99)

    def test_noise_does_not_keep_it_down(self, name: str) -> None:
        """Work that varies by one and a half times its mean is served at 85 % of the capacity."""
        _, requests = run(MAKERS[name](), lambda _: 400, lambda _: 0.05, 70, spread=1.5)

        assert 170 < served_per_second(requests, 20, 70)

    def test_a_light_load_is_not_limited(self, name: str) -> None:
        """At half the capacity one in a hundred is refused at most, with probes, and the limit does not run away."""
        gate, requests = run(MAKERS[name](), lambda _: 100, lambda _: 0.05, 60)

        assert 0.99 < goodput(requests, PREFETCH, 10.0)
        assert 50 > max(limit for _, limit in gate.limits)

    def test_users_are_served_while_prefetch_floods(self, name: str) -> None:
        """With ten times as much prefetch, 99.4 % of the more important class are served."""
        _, requests = run(MAKERS[name](), lambda t: 360 if t >= 20 else 30, lambda _: 0.05, 60, users=lambda _: 60)

        assert 0.994 <= goodput(requests, USER, 1.0)


@pytest.mark.parametrize("phase", range(5))
def test_a_probe_is_no_swing(phase: int) -> None:
    """Ten seconds after a step the rejected share is within 5 points of its mean, beside users with room left free.

    The step is that of `pool-drop` in `make bench-shedding`: work takes twice as long. Where in two seconds a probe
    falls is told by `phase`.
    """
    step_s = 10 + 0.4 * phase
    gate = AdaptiveGate(Gradient2())
    streams = [LoadStream(USER, lambda _: 50, even=True), LoadStream(PREFETCH, lambda _: 80, even=True)]
    service = Service(
        gate, streams, lambda t: 0.1 if t >= step_s else 0.05, Random(7), workers=10, loop=False, spread=0.1
    )
    shares = [share for at, share in rejected_by_second(service.run(60), 2.0) if 22 <= at < 58]
    mean = sum(shares) / len(shares)

    assert 0.05 >= max(abs(share - mean) for share in shares)


@pytest.mark.slow
def test_the_baseline_does_not_drift() -> None:
    """After four minutes under twice the load the baseline of both is within a third of the true 50 ms."""
    for algorithm in (Vegas(), Gradient2()):
        run(algorithm, lambda _: 400, lambda _: 0.05, 240)

        assert 0.033 < algorithm.baseline.round_trip_ns / 1e9 < 0.067


@pytest.mark.slow
def test_a_service_that_begins_under_load_finds_its_baseline() -> None:
    """A limit of 100 over ten workers begins with round trips of half a second, and is below 30 after one minute."""
    for algorithm in (Vegas(initial=100), Gradient2(initial=100)):
        gate, _ = run(algorithm, lambda _: 600, lambda _: 0.05, 100)

        assert 30 > mean_between([(t, float(limit)) for t, limit in gate.limits], 60, 100)
