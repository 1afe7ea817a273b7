"""The faults, and the tools that cause them: proxies, packet filters, a hostile client, nonsense."""
