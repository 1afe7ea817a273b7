"""Binds chaos runs to the model that is proved: nodes write down their steps, and a judge follows them offline."""
