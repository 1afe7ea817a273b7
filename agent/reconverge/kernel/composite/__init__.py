"""Limits that are made of several tables: all of several quotas, or a share of a parent."""
