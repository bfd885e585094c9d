"""Views for the tests of the leased threads."""

import threading

from django.http import HttpRequest, JsonResponse
from django.urls import path


def thread(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"thread": threading.get_ident()})


urlpatterns = [path("thread", thread)]
