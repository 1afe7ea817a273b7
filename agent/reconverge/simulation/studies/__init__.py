"""Studies over many simulated runs: which sync interval and policy to choose, and what they cost."""
