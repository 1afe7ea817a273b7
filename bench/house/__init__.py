"""How the code is laid out and written, in numbers: files, lengths, comments, circles, words, names of classes."""
