"""How a limit decides while it is on, in shadow or off, and if it has bans or a quota of 0."""
