"""`reconverge replay`: a recording of real requests on a fleet of real processes."""
