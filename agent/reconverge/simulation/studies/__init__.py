"""Studies over many simulated runs: which sync interval and policy suit a deployment, and what they cost."""
