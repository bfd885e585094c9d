"""Everything that is served over HTTP, but for file writes (``sandboxhub/asgi.py``)."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

handler400 = "sandboxes.api.problems.bad_request"
handler404 = "sandboxes.api.problems.not_found"
handler500 = "sandboxes.api.problems.server_error"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("v1/", include("sandboxes.api.urls")),
    path("v1/", include("terminals.urls")),
]
