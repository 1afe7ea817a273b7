"""Outgoing calls to a server that has limits: reading its response fields, and quotas that all workers share."""
