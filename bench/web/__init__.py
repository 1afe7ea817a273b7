"""The cost of a limiter for a web application, and its clients' experience in an outage."""
