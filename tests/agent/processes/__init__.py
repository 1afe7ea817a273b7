"""Agents and what happens to their processes: forks, signals, ends, servers, restored memory."""
