"""The hub behind Sentinels."""
