"""A Flask application with limits, for any number of workers; run by itself, it asks itself some questions.

RECONVERGE_HUB says where the workers meet; without it, this process is alone.
"""

from collections import Counter

from flask import Blueprint, Flask, request

from reconverge import Agent
from reconverge.integrations.flask import Limits

app = Flask(__name__)
limits = Limits(
    lambda: request.headers.get("X-API-Key"), app=app, agent=Agent(namespace="shop"), default_limits=["20/minute"]
)
api = Blueprint("api", __name__, url_prefix="/api")
limits.limit("5/minute")(api)


@app.get("/")
def home() -> str:
    """Has the default limits, which count for each view."""
    return "welcome"


@app.post("/login")
@limits.limit(
    "3/minute", key_func=lambda: request.form["user"], deduct_when=lambda response: response.status_code > 400
)
def login() -> tuple[str, int]:
    """Only what fails counts, for each user that is tried."""
    return ("welcome", 200) if request.form["word"] == "right" else ("wrong", 401)


@api.get("/items")
def items() -> list[int]:
    """Has the limit of its blueprint."""
    return [1, 2, 3]


@app.get("/health")
@limits.exempt
def health() -> str:
    """Has none."""
    return "ok"


app.register_blueprint(api)

if __name__ == "__main__":
    client = app.test_client()
    for path in ("/", "/api/items", "/health"):
        answers = [client.get(path, headers={"X-API-Key": "ada"}) for _ in range(30)]
        print(f"{path}: {dict(Counter(answer.status_code for answer in answers))}")
    tries = [client.post("/login", data={"user": "ada", "word": word}) for word in ["right", "wrong"] * 5]
    print("logins:", *(answer.status_code for answer in tries))
