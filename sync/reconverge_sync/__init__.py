"""The hubs: stores through which the nodes of a fleet exchange, on Redis, on an MQTT broker or in memory."""
