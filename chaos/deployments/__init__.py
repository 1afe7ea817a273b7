"""The deployments at which nodes meet: one Redis, a Redis that Sentinels watch, a cluster, a broker of MQTT."""
