"""Computes which fraction of traffic to reject, by a damped controller, from a worker's load relative to its target."""

# Theory of operation.
#
# The plant, which is controlled. If the requests that a worker admits need more time than it has, a queue forms, and
# the wait in it grows by (offered load) * (admitted fraction) - 1 seconds a second. So the wait is the integral of past
# overload. A rule that looks only at the present wait (shed while it is long, as CoDel and AIMD do in their ways) sheds
# too much while the queue drains and too little while it fills: the rejected fraction oscillates for ever. Uber found
# this with Cinnamon, and uses a PID controller.
#
# The output is not the rejected fraction but its *depth* u, with which e**-u of the traffic is admitted. Near the
# fraction that the worker can serve, a change of u by du changes the growth of the wait by -du seconds a second at any
# load: at twice the capacity or twenty times, the control loop has the same gain, and so the same damping. With the
# rejected fraction as the output, the gain would be the offered load itself, and gains that are stable at 1.2 times the
# capacity would oscillate at 12 times.
#
# Damping. The error e is the pressure minus its target; the pressure is in units of the target, so the target is 1.0.
# For the wait of an event loop, with a target of T seconds, the loop is u'' + (kp/T) u' + (ki/T) u = 0: its damping
# ratio is kp / (2 sqrt(ki T)), which the default gains and T = 0.05 s make 1.1, above the 1 from which on nothing
# oscillates. The delay of a measurement, about d = 0.08 s, costs phase: kp d / T must stay well below 1, and is 0.27.
# The gain of the derivative term is 0 by default: the plant integrates already, so the proportional term acts as a
# derivative would, and the derivative of a noisy wait is mostly noise. In simulations a gain of 0.01 made nothing
# calmer.
#
# Floods. A load of three times the capacity makes the wait grow by two seconds a second, and clients that have waited
# for a second are gone, so the time that was spent on them is wasted. So beyond `FLOOD` targets the proportional term
# is steep: it sheds nearly all that may be shed, and then fades with the time constant `FLOOD_S`, as requests that wait
# in front of the loop are not measured. Meanwhile the integral rises at its own pace, and does not fall, so each flood
# is smaller than the last. Near the target, where damping matters, this term is zero.
#
# Wind-up. The integral does not grow while the output, without a flood, would be at its upper end, and is never
# negative. So it never has to unwind, and the output falls from the first pressure below the target on.
#
# Slow recovery. The error is never below -1, as no wait is negative, so the depth falls by ki a second at most, whereas
# it rises by up to ERROR_MAX times that. This asymmetry keeps a worker from admitting all traffic again just because it
# is not overloaded without that traffic.
#
# Sources: Uber, "PID Controller for Cinnamon" (2023), for the finding; Åström and Murray, "Feedback Systems", chapter
# 11, for anti-windup and the filter of the derivative.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from reconverge.errors import InvalidSetting

ERROR_MAX: Final = 9.0
"""A larger error (the load above its target, in multiples of the target) counts as this, so that a stall of a minute
does not cause minutes of shedding."""
REJECTED_MAX: Final = 0.98
"""The largest fraction to reject. Some requests are always admitted, or a worker could not notice that it has
recovered."""
DEPTH_MAX: Final = -math.log(1.0 - REJECTED_MAX)
FLOOD: Final = 3.0
"""An error above this multiple of the target is a flood. The part above it counts `FLOOD_GAIN` times in the
proportional term."""
FLOOD_GAIN: Final = 5.0
FLOOD_S: Final = 0.3
"""The time constant, in seconds, with which a flood fades."""
FLOOD_OVER: Final = 0.1
"""The integral may fall again only once a flood has faded to this multiple of the target."""
ELAPSED_MAX_S: Final = 0.5
"""The time between two steps counts as so many seconds at most, even if the machine was suspended for longer."""


@dataclass(frozen=True, slots=True)
class Gains:
    """The gains of the controller: how strongly it reacts to an error, which is the pressure above its target of 1.

    Raises InvalidSetting for a negative gain, or if `ki` is zero: without it the error would stay.
    """

    kp: float = 0.17
    """The proportional gain: the depth of shedding (see `Controller.depth`) for an error of 1."""
    ki: float = 0.12
    """The integral gain: the depth of shedding that an error of 1 adds in each second."""
    kd: float = 0.0
    """The derivative gain: the depth of shedding for an error that grows by 1 in each second."""
    smoothing_s: float = 0.05
    """The time constant, in seconds, of the filter that smooths the pressure."""

    def __post_init__(self) -> None:
        for name in ("kp", "ki", "kd", "smoothing_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise InvalidSetting(name, value, "must be a number of zero or more")
        if self.ki == 0:
            raise InvalidSetting("ki", 0, "must be more than zero, or the pressure would never reach its target")

    def damping(self, target_s: float) -> float:
        """Returns the damping ratio for a queue with a target wait of `target_s`; from 1.0 on nothing oscillates."""
        return self.kp / (2.0 * math.sqrt(self.ki * target_s))


BROUGHT_BACK_S: Final = DEPTH_MAX / Gains().ki
"""The most seconds until an idle worker, with the default gains, admits all traffic again."""


class Controller:
    """Computes the fraction of requests to reject from measured pressures. It has no clock of its own."""

    def __init__(self, gains: Gains | None = None) -> None:
        self.gains = Gains() if gains is None else gains
        self.pressure = 0.0
        """The smoothed load, as a multiple of its target."""
        self.depth = 0.0
        """The strength of shedding: the fraction e**-depth of the traffic is admitted; 0 admits all."""
        self._integral = 0.0
        self._begun = False
        self._flood = 0.0
        """The part of recent errors that was above `FLOOD`; it fades."""

    @property
    def rejected(self) -> float:
        """Returns the fraction to reject, from 0 to `REJECTED_MAX`."""
        return 1.0 - math.exp(-self.depth)

    def step(self, pressure: float, elapsed_s: float, *, rejected_max: float = REJECTED_MAX) -> float:
        """Computes the fraction to reject from a load `pressure`, measured `elapsed_s` seconds after the last one.

        `pressure` is a multiple of the target. `rejected_max` is the largest fraction that can be rejected at present.
        A pressure of NaN counts as the target, and a time of NaN as 0, so that neither stays in the controller's state.
        """
        elapsed_s = min(max(elapsed_s, 0.0), ELAPSED_MAX_S) if math.isfinite(elapsed_s) else 0.0
        pressure = min(max(pressure, 0.0), 1.0 + ERROR_MAX) if math.isfinite(pressure) else 1.0
        before = self.pressure
        if self._begun and self.gains.smoothing_s > 0:
            weight = 1.0 - math.exp(-elapsed_s / self.gains.smoothing_s)
            self.pressure += weight * (pressure - self.pressure)
        else:
            self.pressure = before = pressure
            self._begun = True
        error = self.pressure - 1.0
        slope = (self.pressure - before) / elapsed_s if elapsed_s > 0 else 0.0
        depth_max = -math.log(1.0 - min(max(rejected_max, 0.0), REJECTED_MAX))
        self._flood = max(error - FLOOD, self._flood * math.exp(-elapsed_s / FLOOD_S), 0.0)
        steep = error + (FLOOD_GAIN - 1.0) * self._flood
        instant = self.gains.kp * steep + self.gains.kd * slope
        integral = self._integral + self.gains.ki * error * elapsed_s
        wound_up = error > 0 and self.gains.kp * error + integral > depth_max
        if wound_up or (error < 0 and self._flood > FLOOD_OVER):
            integral = self._integral
        self._integral = min(max(integral, 0.0), depth_max)
        self.depth = min(max(instant + self._integral, 0.0), depth_max)
        return self.rejected
