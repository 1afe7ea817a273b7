"""Which fraction of the traffic a worker rejects: a damped controller, fed with how far it is from its target."""

# Theory of operation.
#
# The plant. A worker whose arrivals, after shedding, need more than its time gets a queue, and the wait in that queue
# grows for as long as that is so: by (offered load) * (admitted fraction) - 1 seconds a second. It adds up, so it
# remembers. A rule that only looks at it (shed while the wait is long, as CoDel and AIMD do in their ways) sheds too
# much while the queue drains and too little while it fills: the rejected fraction swings for ever. Uber's Cinnamon
# found so, and took a PID controller.
#
# The output is not the rejected fraction but its *depth* u, with which e**-u of the traffic is admitted. Near the
# fraction that fits, a change of u by du changes the growth of the wait by -du seconds a second whatever the load is:
# once too much or twenty times, the loop has the same gain, and so the same damping. With the rejected fraction as the
# output the gain would be the offered load itself, and gains that are calm at 1.2 times would swing at 12 times.
#
# Damping. The error e is the pressure less its target, the pressure being in units of the target (1.0 is the target).
# For the wait of an event loop, with a target of T seconds, the loop is u'' + (kp/T) u' + (ki/T) u = 0: its damping
# ratio is kp / (2 sqrt(ki T)), which the default gains and T = 0.05 s make 1.1, more than the 1 from which on nothing
# swings. The delay of a measurement, about d = 0.15 s, takes phase: kp d / T must stay well below 1, and is 0.36.
# There is a derivative term, and it is 0 by default: the plant adds up already, so the proportional term does what a
# derivative would, and the derivative of a noisy wait is mostly noise. Simulated, 0.01 made nothing calmer.
#
# Wind-up. The integral is not added to while the output is at its upper end, and is never below nothing. So it never
# has to unwind, and the way back begins with the first pressure below the target.
#
# Slow to bring back. The error below the target is -1 at most, as no wait is shorter than nothing, so the depth falls
# by ki a second at most, whereas it rises by up to ERROR_MAX times that. That asymmetry is what keeps a worker from
# bringing all traffic back because things are fine without it.
#
# Sources: Uber, "PID Controller for Cinnamon" (2023), for the finding; Åström and Murray, "Feedback Systems", chapter
# 11, for anti-windup and the filter of the derivative.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from reconverge.errors import InvalidSetting

ERROR_MAX: Final = 9.0
"""A pressure of ten targets is as bad as any more: a stall of a minute must not shed for minutes."""
REJECTED_MAX: Final = 0.98
"""Something is always admitted, or a worker that recovers could not tell."""
DEPTH_MAX: Final = -math.log(1.0 - REJECTED_MAX)
ELAPSED_MAX_S: Final = 0.5
"""A step after a longer pause, such as a suspended machine, counts as one of so much."""


@dataclass(frozen=True, slots=True)
class Gains:
    """How strongly the controller acts on an error of one target.

    Raises InvalidSetting for a negative one, or if `ki` is zero: without it the error would stay.
    """

    kp: float = 0.12
    """Depth for an error of one target."""
    ki: float = 0.06
    """Depth a second for an error of one target that lasts."""
    kd: float = 0.0
    """Depth for an error that grows by one target a second."""
    smoothing_s: float = 0.1
    """Time constant of the filter through which the pressure goes."""

    def __post_init__(self) -> None:
        for name in ("kp", "ki", "kd", "smoothing_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise InvalidSetting(name, value, "must be a number of zero or more")
        if self.ki == 0:
            raise InvalidSetting("ki", 0, "must be more than zero, or the pressure would never reach its target")

    def damping(self, target_s: float) -> float:
        """The damping ratio in front of a queue whose wait has this target; from 1.0 on nothing swings."""
        return self.kp / (2.0 * math.sqrt(self.ki * target_s))


class Controller:
    """Turns pressures, measured now and then, into the fraction to reject; has no clock of its own."""

    def __init__(self, gains: Gains | None = None) -> None:
        self.gains = Gains() if gains is None else gains
        self.pressure = 0.0
        """Filtered; 1.0 is the target."""
        self.depth = 0.0
        """What is admitted is e**-depth of all."""
        self._integral = 0.0
        self._begun = False

    @property
    def rejected(self) -> float:
        """The fraction to reject, from 0 to `REJECTED_MAX`."""
        return 1.0 - math.exp(-self.depth)

    def step(self, pressure: float, elapsed_s: float, *, rejected_max: float = REJECTED_MAX) -> float:
        """Take in one measurement, `elapsed_s` after the last one. Returns the fraction to reject from now on.

        `rejected_max` is as far as it may go for now. A pressure that is no number counts as the target.
        """
        elapsed_s = min(max(elapsed_s, 0.0), ELAPSED_MAX_S)
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
        instant = self.gains.kp * error + self.gains.kd * slope
        integral = self._integral + self.gains.ki * error * elapsed_s
        if instant + integral > depth_max and error > 0:
            integral = self._integral  # what it gains while the output is at its end is wind-up
        self._integral = min(max(integral, 0.0), depth_max)
        self.depth = min(max(instant + self._integral, 0.0), depth_max)
        return self.rejected
