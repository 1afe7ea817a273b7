"""What a console shows of one node: how it stands, its load and its busiest keys, left at the hub."""
