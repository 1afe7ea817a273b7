"""Odd hubs, what stands between an agent and a hub, and members at a broker."""
