"""The merge rule, by which a hub merges the reports of all nodes.

Does no I/O; `redis/lua/exchange.lua` does the same.
"""
