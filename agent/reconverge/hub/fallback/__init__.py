"""A fallback hub for the time in which the primary does not answer: the choice of hub, and a session at each."""

from reconverge.hub.fallback.two_hubs import TwoHubs, TwoHubsWithSettings, two_hubs

__all__ = ["TwoHubs", "TwoHubsWithSettings", "two_hubs"]
