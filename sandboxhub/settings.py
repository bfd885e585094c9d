"""All settings, from the environment. ``docs/settings.md`` is their table; ``tests/test_docs.py`` keeps the two equal."""

from __future__ import annotations

import shutil
import socket
import sys
from datetime import timedelta
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from sandboxhub.env import Env, generated_secret, private_directory, private_file

BASE_DIR = Path(__file__).resolve().parent.parent
env = Env()  # type: ignore[no-untyped-call]

# Where it listens and what it keeps
BIND = env.str("BIND", default="127.0.0.1")
PORT = env.whole("PORT", 8000, least=1, most=65535)
SANDBOXHUB_HOME = private_directory(Path(env.str("SANDBOXHUB_HOME", default=str(BASE_DIR / "var"))).absolute())
DATABASES = {"default": env.db_url("DATABASE_URL", default=f"sqlite:///{SANDBOXHUB_HOME / 'sandboxhub.sqlite3'}")}
SECRET_KEY = env.str("SECRET_KEY", default="") or generated_secret(SANDBOXHUB_HOME / "secret_key")
DEBUG = env.bool("DEBUG", default=False)

# Who may reach it
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
SANDBOXHUB_ORIGINS = [origin.lower().rstrip("/") for origin in env.list("SANDBOXHUB_ORIGINS", default=[])]
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
SERVER_PROXY_HEADERS = env.bool("SANDBOXHUB_PROXY", default=False)
SECURE = env.bool("SANDBOXHUB_SECURE", default=False)

# What is leased
SANDBOXHUB_ENGINE = env.one_of("SANDBOXHUB_ENGINE", "oci", ("oci", "kubernetes"))
SANDBOXHUB_RUNTIMES = env.list("SANDBOXHUB_RUNTIMES", default=["gvisor"])
SANDBOXHUB_HOST = env.str("SANDBOXHUB_HOST", default=socket.gethostname())
_libexec = BASE_DIR / ".venv" / "libexec"
SANDBOXHUB_GUEST = Path(env.str("SANDBOXHUB_GUEST", default=str(_libexec / "guest")))
_runsc = _libexec / "runsc" if (_libexec / "runsc").exists() else shutil.which("runsc") or "runsc"
_runc = shutil.which("runc", path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") or "runc"
SANDBOXHUB_RUNSC = Path(env.str("SANDBOXHUB_RUNSC", default=str(_runsc)))
SANDBOXHUB_RUNC = Path(env.str("SANDBOXHUB_RUNC", default=str(_runc)))
SANDBOXHUB_NAMESPACE = env.str("SANDBOXHUB_NAMESPACE", default="sandboxes")
SANDBOXHUB_IMAGE = env.str("SANDBOXHUB_IMAGE", default="")
SANDBOXHUB_CLASS_IMAGES = env.pairs("SANDBOXHUB_CLASS_IMAGES")
SANDBOXHUB_STORAGE_CLASS = env.str("SANDBOXHUB_STORAGE_CLASS", default="")
SANDBOXHUB_RUNTIME_CLASSES = env.pairs("SANDBOXHUB_RUNTIME_CLASSES")
SANDBOXHUB_EGRESS_PROBE = env.bool("SANDBOXHUB_EGRESS_PROBE", default=True)
KUBECONFIG = Path(value) if (value := env.str("KUBECONFIG", default="")) else None
SANDBOXHUB_MEMORY = env.size("SANDBOXHUB_MEMORY", "1GiB", least=64 << 20)
SANDBOXHUB_CPUS = env.number("SANDBOXHUB_CPUS", 2.0, least=0.05, most=1024)
SANDBOXHUB_PIDS = env.whole("SANDBOXHUB_PIDS", 512, least=16, most=1 << 20)
SANDBOXHUB_DISK = env.size("SANDBOXHUB_DISK", "2GiB", least=16 << 20)
SANDBOXHUB_VOLUME_SIZE = env.size("SANDBOXHUB_VOLUME_SIZE", "20GiB", least=16 << 20)
SANDBOXHUB_EXEC_CEILING = env.whole("SANDBOXHUB_EXEC_CEILING", 16, least=0, most=1_000_000)

# Clocks, in seconds, and sizes, in bytes
SANDBOXHUB_EXEC_TIMEOUT = env.whole("SANDBOXHUB_EXEC_TIMEOUT", 900, least=1, most=86_400)
SANDBOXHUB_START_WAIT = env.number("SANDBOXHUB_START_WAIT", 60, least=0, most=600)
SANDBOXHUB_SCHEDULE_WAIT = env.number("SANDBOXHUB_SCHEDULE_WAIT", 5, least=0, most=900)
SANDBOXHUB_REAPER = env.bool("SANDBOXHUB_REAPER", default=True)
SANDBOXHUB_REAP_INTERVAL = env.number("SANDBOXHUB_REAP_INTERVAL", 5, least=0.1, most=3600)
SERVER_DRAIN_SECONDS = env.number("SANDBOXHUB_DRAIN", 20, least=0, most=3600)
SANDBOXHUB_MAX_BODY = env.size("SANDBOXHUB_MAX_BODY", "16MiB", least=4096)
SANDBOXHUB_MAX_FILE = env.size("SANDBOXHUB_MAX_FILE", "1GiB", least=4096)
SERVER_BODY_LIMIT = "sandboxes.api.limits.body_limit"

# Django
ROOT_URLCONF = "sandboxhub.urls"
ASGI_APPLICATION = "sandboxhub.asgi.application"
INSTALLED_APPS = [
    "sandboxhub.server",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "axes",
    "sandboxes",
    "terminals",
]
# Session, sign-in and CSRF are the admin's; off_api keeps them, and their thread hops, off /v1/.
MIDDLEWARE = [
    "sandboxhub.middleware.SecurityMiddleware",
    "sandboxhub.middleware.ServeStaticMiddleware",
    "sandboxhub.middleware.SessionMiddleware",
    "sandboxhub.middleware.CommonMiddleware",
    "sandboxhub.middleware.CsrfViewMiddleware",
    "sandboxhub.middleware.AuthenticationMiddleware",
    "sandboxhub.middleware.MessageMiddleware",
    "sandboxhub.middleware.XFrameOptionsMiddleware",
    "sandboxhub.middleware.AxesMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
# By both, so that nobody locks staff out from elsewhere. What is tried meanwhile does not make it longer.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_TEMPLATE = "admin/locked_out.html"
AXES_VERBOSE = False
PASSWORD_HASHERS = ["sandboxhub.hashers.OneAtATime"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator")
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
STATIC_URL = "/static/"
SERVESTATIC_USE_FINDERS = True
LOGIN_URL = "admin:login"
DATA_UPLOAD_MAX_MEMORY_SIZE = SANDBOXHUB_MAX_BODY
APPEND_SLASH = True

TERMINAL_PAGE = BASE_DIR / "terminals" / "web" / "dist"

# Databases. PostgreSQL has a pool of its own: a thread gives its connection back after each piece of work. Threads are few and stay, so
# each keeps its connection to SQLite, whose last one to be closed would write all that is in the journal to the disk.
if DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
    DATABASES["default"].setdefault("OPTIONS", {}).setdefault("pool", {"min_size": 0, "max_size": 16, "timeout": 30})
elif DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    if not DATABASES["default"]["NAME"].startswith(":"):
        private_file(Path(DATABASES["default"]["NAME"]))  # the journals get its mode
    DATABASES["default"]["CONN_MAX_AGE"] = None
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        transaction_mode="IMMEDIATE",
        timeout=20,
        init_command="PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
    )
else:
    raise ImproperlyConfigured("DATABASE_URL: PostgreSQL and SQLite are supported")

# Behind TLS (docs/settings.md has the whole picture)
if SERVER_PROXY_HEADERS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    USE_X_FORWARDED_HOST = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = SECURE
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE
# sandboxhub.middleware wraps the four middlewares whose names these checks look for.
SILENCED_SYSTEM_CHECKS = ["security.W001", "security.W002", "security.W003", "axes.W002"]
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["sandboxes.api.authentication.KeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["sandboxes.api.authentication.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "sandboxes.api.negotiation.IgnoreAccept",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "sandboxes.api.problems.handle",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Sandboxhub",
    "DESCRIPTION": "Lease sandboxes, run commands in them, read and write their files.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "PREPROCESSING_HOOKS": ["sandboxes.api.schema.only_singular"],
    "POSTPROCESSING_HOOKS": ["sandboxes.api.schema.complete"],
}

LOG_LEVEL = env.one_of("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOG_FORMAT = env.one_of("LOG_FORMAT", "console" if sys.stderr.isatty() else "json", ("console", "json"))
LOGGING_CONFIG = "sandboxhub.logging.configure"
LOGGING = {"level": LOG_LEVEL, "format": LOG_FORMAT}
