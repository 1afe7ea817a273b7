"""A limit on a process's requests in progress that adapts itself to measured round trips."""
