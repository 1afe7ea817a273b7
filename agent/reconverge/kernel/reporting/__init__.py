"""Reports of cells to the hub: the content of each, their order, and how the hub's answers are merged into cells."""
