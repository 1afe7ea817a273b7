"""Signed documents that operators publish for a fleet, the reader that each node has of them, and published settings."""
