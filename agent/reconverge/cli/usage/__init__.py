"""`reconverge usage`: shows and exports what was used."""
