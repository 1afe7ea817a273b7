"""Ways around what costs much, each held against the general one."""
