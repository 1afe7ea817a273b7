"""What an observer of a simulated fleet knows: what was charged, and to which windows."""
