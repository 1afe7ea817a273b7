"""Simulates a fleet of nodes under virtual time: production code runs in a world that is drawn from a seed."""

from reconverge.simulation.fault import Fault
from reconverge.simulation.fleet import COMPARED, AskSettings, Fleet
from reconverge.simulation.pattern import PATTERNS, SimulatedArrival, Traffic
from reconverge.simulation.studies.experiment import Experiment, run, run_once
from reconverge.simulation.studies.figures import Figures, RunFigures
from reconverge.simulation.truth import RunHistory
from reconverge.simulation.world import World

__all__ = [
    "COMPARED",
    "PATTERNS",
    "AskSettings",
    "Experiment",
    "Fault",
    "Figures",
    "Fleet",
    "RunFigures",
    "RunHistory",
    "SimulatedArrival",
    "Traffic",
    "World",
    "run",
    "run_once",
]
