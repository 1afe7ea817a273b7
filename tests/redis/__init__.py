"""Hubs on Redis: one server, TLS, rights, errors, outages."""
