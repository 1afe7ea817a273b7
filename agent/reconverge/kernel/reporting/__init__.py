"""Reports of cells to the hub: their content and order, and the merging of its answers."""
