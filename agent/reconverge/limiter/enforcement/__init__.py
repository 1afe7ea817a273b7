"""The answers of a limit that is on, in shadow or off, of a limit with bans, and of a limit whose quota is 0."""
