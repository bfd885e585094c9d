"""Measures the product against the bare runtimes, or the bare cluster, in one run. ``python -m bench --help``."""
