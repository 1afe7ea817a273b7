"""Measures the layout and the language of the code: files, lengths, comments, circles, words, names of classes."""
