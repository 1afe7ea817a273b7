"""Load shedding: a stack of layers that refuses requests while a process or the fleet has too much to do."""

from reconverge.shedding.adaptive.algorithms import Aimd, Fixed, Gradient2, Vegas
from reconverge.shedding.adaptive.concurrency import AdaptiveConcurrency
from reconverge.shedding.admission import Admission
from reconverge.shedding.classes import TrafficClasses
from reconverge.shedding.fleet import FleetShedder
from reconverge.shedding.layers import Arrival, InProgress, Layer, ShedRefusal, Ticket
from reconverge.shedding.rate import RequestRate
from reconverge.shedding.stack import Stack, StackStats
from reconverge.shedding.worker.controller import Gains
from reconverge.shedding.worker.shedder import WorkerShedder
from reconverge.shedding.worker.signals import LoopLag, Occupancy

__all__ = [
    "AdaptiveConcurrency",
    "Admission",
    "Aimd",
    "Arrival",
    "Fixed",
    "FleetShedder",
    "Gains",
    "Gradient2",
    "InProgress",
    "Layer",
    "LoopLag",
    "Occupancy",
    "RequestRate",
    "ShedRefusal",
    "Stack",
    "StackStats",
    "Ticket",
    "TrafficClasses",
    "Vegas",
    "WorkerShedder",
]
