"""Studies over many simulated runs: they find a sync interval and a policy for a deployment, and their cost."""
