"""URLs that are first imported at the first request, with a view that is exempt."""

from __future__ import annotations

from django.urls import path

from reconverge.integrations.django import exempt
from tests.support.applications.django_project import home

urlpatterns = [path("free/", exempt(home)), path("", home)]
