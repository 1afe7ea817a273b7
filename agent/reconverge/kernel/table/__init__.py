"""Tables: a table has the counts of one limit's keys on this node, decides about requests, and corrects charges."""
