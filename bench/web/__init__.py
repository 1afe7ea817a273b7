"""What a limiter costs a web application, and what its clients feel in an outage."""
