"""The worker layer of a stack: sheds requests while this worker process is overloaded."""
