"""The command `reconverge usage`: shows and exports usage."""
