"""Tables: the decisions about one limit, with its cells, its charges and their corrections."""
