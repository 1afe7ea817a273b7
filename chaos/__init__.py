"""Real processes and servers, real faults, and a judge that reads what the processes recorded."""
