"""Unusual hubs, relays between an agent and a hub, and members at a broker."""
