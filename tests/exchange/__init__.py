"""When and by whom an agent exchanges, and what interrupts that."""
