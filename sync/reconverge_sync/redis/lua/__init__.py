"""The scripts that run in a Redis, in folders by what they serve, and the code that fills in their numbers."""
