"""The nodes' processes: their start, their requests, and the kinds of programs in which agents live."""
