"""What contracts cost a node that has many customers."""
