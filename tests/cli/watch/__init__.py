"""Tests of the commands that show a fleet."""
