"""The common part of web integrations: rules, fields, failures, clients that mean harm."""
