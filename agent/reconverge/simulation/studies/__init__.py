"""Questions that many simulated runs answer: which interval, which policy, which cost."""
