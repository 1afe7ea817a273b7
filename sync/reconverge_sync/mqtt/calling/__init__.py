"""Calls of members to the leader, for all purposes but exchanges of batches, and the leader's replies."""
