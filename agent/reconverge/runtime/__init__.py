"""What the interpreter and the operating system provide: threads, event loops, forks, copies of a process."""
