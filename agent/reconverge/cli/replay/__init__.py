"""The command `reconverge replay`: replays a recording of real requests on a fleet of real processes."""
