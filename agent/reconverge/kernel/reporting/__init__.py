"""Reports of cells to the hub, their order, and the use of its answers."""
