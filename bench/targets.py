"""What is asked of the product, by engine and row: of gVisor and of runc; nothing where it is None.

A number bounds the ratio to the baseline, or in a row without one the p50 itself.
"""

from __future__ import annotations

MEMORY_MOST = 32.0  #: MB that a server may grow by, whatever it moves

TARGETS: dict[str, dict[str, tuple[float | None, float | None]]] = {
    "oci": {
        "true, guest": (0.6, 0.15),
        "true, API": (1.2, 0.8),
        "create -> first result, API": (1.2, None),
        "100 MB out, guest": (0.8, 0.8),
        "100 MB in, guest": (0.4, 0.4),
        "  the server grew by": (MEMORY_MOST, MEMORY_MOST),
        "100 x sleep 1 at once, API": (4.0, None),
    },
    "kubernetes": {
        "true, API": (0.3, 0.2),
        "create -> first result, API": (0.9, 0.9),
        "100 MB out, guest": (0.7, 0.7),
        "100 MB in, guest": (0.3, 0.3),
        "  the server grew by": (MEMORY_MOST, MEMORY_MOST),
        "100 x sleep 1 at once, API": (5.0, None),
    },
}


def target(engine: str, runtime: str, row: str) -> float | None:
    gvisor, runc = TARGETS[engine].get(row, (None, None))
    return gvisor if runtime == "gvisor" else runc
