"""A second hub for the time in which the first does not answer: the choice between them, and a session at each."""

from reconverge.hub.fallback.two_hubs import TwoHubs, TwoHubsWithSettings, two_hubs

__all__ = ["TwoHubs", "TwoHubsWithSettings", "two_hubs"]
