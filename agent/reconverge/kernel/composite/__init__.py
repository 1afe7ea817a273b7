"""Limits that consist of several tables: limits with several quotas, and limits with a share of a parent's quota."""
