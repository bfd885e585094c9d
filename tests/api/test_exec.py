from __future__ import annotations

from harness.client import Lease


def test_argv(box: Lease) -> None:
    assert box.exec("echo", "a b", "*") == {
        "exitCode": 0,
        "stdout": "a b *\n",
        "stderr": "",
        "stdoutTruncated": False,
        "stderrTruncated": False,
        "timeoutSec": 100,
    }
