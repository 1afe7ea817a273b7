"""Helpers for the interpreter and the operating system: threads, event loops, forks, copies of a process."""
