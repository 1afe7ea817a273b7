"""Reports of cells, their order, and the use of the answers."""
