"""`reconverge contracts`: plans and customers."""
