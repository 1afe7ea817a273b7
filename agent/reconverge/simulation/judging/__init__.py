"""An observer's knowledge of a simulated fleet: the charges, and their windows."""
