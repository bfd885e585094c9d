from .fixtures import kubeconfig, node

__all__ = ["kubeconfig", "node"]
