"""The arithmetic of each algorithm, against references and worked examples."""
