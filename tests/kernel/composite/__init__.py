"""Several quotas of one limit, and shares of a parent."""
