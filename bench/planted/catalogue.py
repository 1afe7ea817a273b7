"""All faults that are planted."""

from __future__ import annotations

from typing import Final

from bench.planted.fault import PlantedFault
from bench.planted.in_decisions import IN_DECISIONS
from bench.planted.in_departures import IN_DEPARTURES
from bench.planted.in_granting import IN_GRANTING
from bench.planted.in_hearing import IN_HEARING
from bench.planted.in_reports import IN_REPORTS
from bench.planted.in_sealing import IN_SEALING
from bench.planted.in_silence import IN_SILENCE

FAULTS: Final[tuple[PlantedFault, ...]] = (
    *IN_DECISIONS,
    *IN_REPORTS,
    *IN_HEARING,
    *IN_GRANTING,
    *IN_DEPARTURES,
    *IN_SILENCE,
    *IN_SEALING,
)
"""All faults, in the order of the table."""
