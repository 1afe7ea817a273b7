"""What can go wrong, and the tools that make it go wrong: proxies, packet filters, a hostile client, nonsense."""
