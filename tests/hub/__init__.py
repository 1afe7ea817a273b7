"""Promises of every hub, and a node's answer to a hub that breaks one."""
