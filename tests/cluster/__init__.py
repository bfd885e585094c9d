"""A real one-node Kubernetes cluster for the tests: what ``script/cluster`` runs. See README.md.

Parts of this package run on the node and before any package is installed: ``api``, ``objects``, ``volumes`` and ``images`` use the
standard library only, and of Debian's Python.
"""
