"""State machines of whole fleets, and the twins: promises that hold whatever the network does."""
