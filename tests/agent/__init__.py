"""An agent as its application meets it: with threads, loops, processes, and a hub."""
