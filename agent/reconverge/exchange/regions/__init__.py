"""Regions with hubs of their own under one limit, and the bridge that lends capacity to one."""
