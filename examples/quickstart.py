"""Two nodes share one limit, and each decides from its own memory."""

import time

from reconverge import Agent

with Agent("embedded://quickstart", policy="strict") as one, Agent("embedded://quickstart", policy="strict") as two:
    logins = [node.limit("login", "100/hour") for node in (one, two)]
    admitted = [0, 0]
    while not (one.ready and two.ready):
        time.sleep(0.01)
    for _ in range(300):
        for number, login in enumerate(logins):
            admitted[number] += login.allow("ada")
        time.sleep(0.005)  # meanwhile the exchanges move the quota to where it is asked for

print(f"Two nodes were asked 600 times and admitted {admitted[0]} + {admitted[1]} = {sum(admitted)} of 100.")
