"""Classes that decide for a limit while it is on, in shadow or off, and if it has bans or a quota of 0."""
