"""Tests of signed documents that are published for a fleet, and of published settings."""
