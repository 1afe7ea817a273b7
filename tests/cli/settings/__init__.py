"""Tests of the commands that publish settings."""
