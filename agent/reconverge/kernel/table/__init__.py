"""The decisions about one limit: its cells, and questions, charges and corrections there."""
