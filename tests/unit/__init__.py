"""The parts of a node, each on its own."""
