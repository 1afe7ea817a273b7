"""Usage by identity, limit, route and period: counted, added up, exported."""
