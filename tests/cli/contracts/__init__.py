"""`reconverge contracts`: each command as a process of its own, or within this one."""
