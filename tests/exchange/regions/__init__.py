"""Regions with hubs of their own under one limit."""
