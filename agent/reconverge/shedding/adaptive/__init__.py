"""A limit on a process's requests in progress, which adapts itself to the measured durations of requests."""
