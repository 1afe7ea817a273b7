"""Agents and limits from files, the environment and arguments."""
