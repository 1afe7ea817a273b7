"""Asks the project some questions, when it is run as `python examples/django_app`.

To serve it, in its directory and with two workers:
DJANGO_SETTINGS_MODULE=settings gunicorn --preload --workers 2 'django.core.wsgi:get_wsgi_application()'
"""

import logging
import os
from collections import Counter

import django
from django.test import Client

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()
logging.getLogger("django.request").setLevel(logging.ERROR)

for url in ("/", "/search/"):
    client = Client(headers={"X-API-Key": f"visitor of {url}"})
    answers = [client.get(url) for _ in range(30)]
    print(f"{url}: {dict(Counter(answer.status_code for answer in answers))}")
    print(f"    RateLimit: {answers[0].headers['RateLimit']}")

client = Client(headers={"X-API-Key": "ada"})
tries = [client.post("/login/", {"word": word}) for word in ["right", "wrong"] * 5]
print("logins:", *(answer.status_code for answer in tries))

client = Client(headers={"X-API-Key": "bob"})
words = [len(b"".join(client.get("/chat/")).split()) for _ in range(10)]
print(f"chats: {sum(words)} words in {len(words)} answers, of which each might have had 300")
