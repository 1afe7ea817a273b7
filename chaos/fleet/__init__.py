"""The nodes' processes: how they are started and asked, and what they live in."""
