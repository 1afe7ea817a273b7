"""What every web integration shares: rules, fields, failures, clients that mean harm."""
