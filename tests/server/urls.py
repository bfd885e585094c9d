"""Views for the tests of the leased threads."""

import threading

from django.http import HttpRequest, JsonResponse
from django.urls import path

local = threading.local()


def thread(request: HttpRequest) -> JsonResponse:
    local.served = getattr(local, "served", 0) + 1
    return JsonResponse({"served": local.served})


def block(request: HttpRequest) -> JsonResponse:
    print("blocking", flush=True)
    threading.Event().wait()
    return JsonResponse({})


urlpatterns = [path("thread", thread), path("block", block)]
