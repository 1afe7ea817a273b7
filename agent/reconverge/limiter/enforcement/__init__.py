"""Answers of a limit as its switch has it: on, in shadow or off; and those of a limit with bans, or a quota of 0."""
