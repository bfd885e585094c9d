"""Measures the product against the bare runtimes of the same machine, in one run. ``python -m bench --help``."""
