"""Reports of keys to the hub: the content of each, their order, and how a node stores the hub's answers."""
