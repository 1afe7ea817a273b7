"""The cost of exchanges: the hub, the network, the event loop; many nodes and many keys."""
