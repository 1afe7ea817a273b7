"""`reconverge usage`: shows and exports usage."""
