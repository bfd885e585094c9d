"""Hooks of schemathesis: a sandbox that runs for operations that need one, and an end for those that were leased.

SANDBOX is that sandbox's id.
"""

from __future__ import annotations

import os
import re
from collections import deque
from typing import Any
from urllib.parse import urljoin

import requests
import schemathesis
from schemathesis import Case, GenerationMode, HookContext, Response

_NEEDS_ONE = {
    "get_sandbox_by_id",
    "post_sandbox_by_id_exec",
    "get_sandbox_by_id_fs",
    "post_sandbox_by_id_fs",
    "run_in_sandbox",
    "read_sandbox_file",
    "write_sandbox_file",
    "stop_run",
}
_LEASES = {"post_sandbox", "lease_sandbox"}
_ENDS = {"delete_sandbox_by_id", "end_sandbox"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


#: Leases that a run may hold at once: enough for a scenario to use what it took, and far from the ceiling.
_MOST = 8
_held: deque[str] = deque()


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    name = case.operation.definition.raw["operationId"]
    body = case.body if isinstance(case.body, dict) else {}
    if name in _ENDS:  # schemathesis uses again the ids that it sees in answers
        for place in (case.path_parameters, body):
            if place.get("id") == os.environ["SANDBOX"]:
                place["id"] = "m_000000000000000000000000"
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    # Valid requests are made valid also where OpenAPI cannot say what that is.
    if isinstance(env := body.get("env"), dict):
        body["env"] = {name: value for name, value in env.items() if _VARIABLE.fullmatch(name)}
    if body.get("argv") and body["argv"][0] == "":
        body["argv"][0] = "true"
    if name in _LEASES:
        # Two requests with one of these in common get one lease, and its end would surprise whoever believes to have two.
        if "Idempotency-Key" in case.headers:
            case.headers["Idempotency-Key"] = case.id
        if body.get("project"):
            body["project"] += case.id
    if name in _NEEDS_ONE and not case.id.endswith("0"):
        place = case.path_parameters if "id" in case.path_parameters else body
        place["id"] = os.environ["SANDBOX"]


@schemathesis.hook
def after_call(context: HookContext, case: Case, response: Response) -> None:
    """End the oldest of what was leased, so that the ceiling is never met."""
    if case.operation.definition.raw["operationId"] not in _LEASES or response.status_code not in (200, 201):
        return
    taken = response.json().get("id")  # absent when a check tried another method
    if taken is not None:
        if taken in _held:  # resumed
            _held.remove(taken)
        _held.append(taken)
    if len(_held) > _MOST:
        url = urljoin(response.request.url, f"/v1/sandbox/{_held.popleft()}")
        headers = {"Authorization": response.request.headers["Authorization"]}
        requests.delete(url, params={"purge": "1"}, headers=headers, timeout=60)
