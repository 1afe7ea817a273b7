"""The settings of a Django project with limits.

RECONVERGE_HUB says where the workers meet; without it, this process is alone.
"""

import os

from reconverge.integrations import by_header

ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "urls"
SECRET_KEY = os.environ.get("SECRET_KEY", "for a demonstration only")
MIDDLEWARE = [
    "django.middleware.common.CommonMiddleware",
    "reconverge.integrations.django.RateLimitMiddleware",
]

RECONVERGE = {
    "NAMESPACE": "django-app",
    "KEY_FUNC": by_header("X-API-Key"),
    "LIMITS": "20/minute",
    "RULES": [
        {"VIEWS": ["search"], "LIMITS": "5/minute"},
        {"VIEWS": ["login"], "METHODS": ["POST"], "LIMITS": "3/minute", "DEDUCT_WHEN": "urls.failed"},
    ],
}
