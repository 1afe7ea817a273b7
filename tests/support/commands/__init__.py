"""Runs commands, and reads their output."""
