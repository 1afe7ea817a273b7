"""Nodes that live in the workers of gunicorn: forked ones, and those of gevent."""
