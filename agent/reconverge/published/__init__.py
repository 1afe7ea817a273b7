"""Signed documents that operators publish for a fleet: how nodes judge and read them, and the settings among them."""
