"""Signed documents that operators publish for a fleet: how nodes verify and read them, and published settings."""
