"""Which keys have a cell: their store, eviction, and the memory of keys that were evicted."""
