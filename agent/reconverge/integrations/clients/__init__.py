"""Calls to a metered server: what its responses say, and quotas that all workers share."""
