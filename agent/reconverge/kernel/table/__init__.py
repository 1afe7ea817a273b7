"""Tables: a table holds the cells of one limit on this node, decides about its requests, and corrects their charges."""
