"""Real processes and servers, real faults, and a judge who reads what was written down."""
