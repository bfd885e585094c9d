"""Sandboxes in a Kubernetes cluster: one pod each, reached only by name through the API server's exec subresource."""

from sandboxes.engine.kubernetes.config import KubernetesConfig
from sandboxes.engine.kubernetes.engine import KubernetesEngine

__all__ = ["KubernetesConfig", "KubernetesEngine"]
