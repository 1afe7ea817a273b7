"""The merge rule: what a hub makes of the reports of all nodes. Does no I/O; `redis/exchange.lua` is its twin."""
