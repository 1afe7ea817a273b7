"""The decisions about one limit: its cells, and what is asked, charged and corrected there."""
