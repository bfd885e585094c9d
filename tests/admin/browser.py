"""A member of staff at a live server."""

from __future__ import annotations

import re

import requests
from harness.server import Server


def token(page: str) -> str:
    """What a form of ``page`` proves with that it is ours."""
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert found
    return found[1]


class Browser:
    """A member of staff at a live server, with what a browser keeps."""

    def __init__(self, server: Server) -> None:
        self.url = server.url
        self.session = requests.Session()
        page = self.session.get(f"{self.url}/admin/login/", timeout=60).text
        code = (
            "from django.contrib.auth import get_user_model as u; "
            "s, _ = u().objects.get_or_create(username='reaper-of-tests', is_staff=True, is_superuser=True); "
            "s.set_password('correct horse battery'); s.save()"
        )
        server.manage("shell", "-c", code)
        answer = self.post("/admin/login/", page, username="reaper-of-tests", password="correct horse battery", next="/admin/")
        assert answer.url == f"{self.url}/admin/"

    def get(self, path: str) -> str:
        response = self.session.get(f"{self.url}{path}", timeout=60)
        assert response.status_code == 200
        return response.text

    def post(self, path: str, page: str, **fields: str | list[str]) -> requests.Response:
        response = self.session.post(f"{self.url}{path}", {**fields, "csrfmiddlewaretoken": token(page)}, timeout=120)
        assert response.status_code == 200
        return response
