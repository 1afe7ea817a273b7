"""The scenes of claims: a single hub to which a test sends reports, or several nodes without event loops."""
