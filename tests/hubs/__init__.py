"""Tests of hubs: what each promises, and what happens when it breaks."""
