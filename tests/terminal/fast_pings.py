"""The product's settings with pings every few seconds, so that a test of them is short."""

from sandboxhub.settings import *  # noqa: F403

SERVER_PING_SECONDS = 1
