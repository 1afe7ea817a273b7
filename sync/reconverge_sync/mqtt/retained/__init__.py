"""The messages that the broker retains for all members: settings, contracts, and the mark of key hashes."""
