"""Limits: how they are written, checked and shown."""
