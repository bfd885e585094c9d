"""Do harm while something runs in a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import requests
from harness.client import Lease
from harness.waiting import at_once


def under_commands(leases: Sequence[Lease], harm: Callable[[], object], command: str = "sleep 1000") -> list[requests.Response]:
    """Do ``harm`` while ``command`` runs in each of ``leases``; what its callers are told."""
    for lease in leases:
        lease.sh("rm -f /tmp/began; mkfifo /tmp/began")

    def work(number: int) -> requests.Response | None:
        if number < len(leases):
            return leases[number].api.post(f"{leases[number].path}/exec", {"command": f"echo x >/tmp/began; {command}"})
        for lease in leases:
            assert lease.sh("cat /tmp/began") == "x\n"
        harm()
        return None

    return [answer for answer in at_once(len(leases) + 1, work) if answer is not None]
