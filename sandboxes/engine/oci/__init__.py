"""Sandboxes on this host, by an OCI runtime (runsc or runc) driven from the event loop."""

from sandboxes.engine.oci.config import OciConfig
from sandboxes.engine.oci.engine import OciEngine

__all__ = ["OciConfig", "OciEngine"]
