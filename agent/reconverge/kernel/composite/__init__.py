"""Limits that consist of several tables: with several quotas, or with a share of a parent's quota."""
