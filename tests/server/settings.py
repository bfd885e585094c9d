"""The least that Django needs for the server's tests. Values that a test wants to be other come as SERVER_... in the environment."""

import os

SECRET_KEY = "test"
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.server.urls"
ASGI_APPLICATION = "tests.server.app.application"
INSTALLED_APPS = ["sandboxhub.server", "django.contrib.staticfiles"]
STATIC_URL = "/static/"
DATABASES = {}
SERVER_BODY_LIMIT = "tests.server.app.body_limit"
SERVER_PROXY_HEADERS = os.environ.get("SERVER_PROXY_HEADERS") == "1"
for _name in ("DRAIN", "ANSWER", "HEADER", "IDLE", "STALL", "HANDSHAKE", "PING", "PONG", "CLOSE"):
    if _value := os.environ.get(f"SERVER_{_name}_SECONDS"):
        globals()[f"SERVER_{_name}_SECONDS"] = float(_value)
