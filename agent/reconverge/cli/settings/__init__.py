"""The commands `reconverge settings` and `reconverge switch`: publish settings that all agents of a namespace apply."""
