"""The project itself: documents, examples, packages, types, benchmarks."""
