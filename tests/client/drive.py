"""Drives every operation of the published client, unchanged, and prints what each did as JSON. Runs in the client's own environment:

drive.py URL KEY OPERATION...    the operations that the server is not expected to have
"""

import base64
import json
import sys
import threading
from typing import Any

from hanzoai import cloud
from hanzoai.cloud.exceptions import ApiException, BadRequestException, NotFoundException, ServiceException, UnauthorizedException


def main(url: str, key: str, *expected_gaps: str) -> dict[str, Any]:
    api = cloud.SandboxApi(cloud.ApiClient(cloud.Configuration(host=url, access_token=key)))
    report: dict[str, Any] = {
        "operations": sorted(
            name
            for name in vars(cloud.SandboxApi)
            if not name.startswith("_") and not name.endswith(("_with_http_info", "_without_preload_content"))
        )
    }

    # The REST form
    made = api.post_sandbox(cloud.SandboxSandboxIn(var_class="exec", ttl_sec=600))
    assert made is not None and made.id is not None
    report["post_sandbox"] = made.to_dict()
    report["get_sandbox_by_id"] = api.get_sandbox_by_id(made.id).to_dict()
    report["get_sandbox"] = {
        "all": [row.id for row in api.get_sandbox().sandboxes],
        "running": [row.id for row in api.get_sandbox(status="running", project="").sandboxes],
        "of a project": [row.id for row in api.get_sandbox(project="none of this name").sandboxes],
    }
    request = cloud.SandboxExecRequest(argv=["sh", "-c", "cat; echo error >&2; exit 3"], stdin="input", timeout_sec=30)
    report["post_sandbox_by_id_exec"] = api.post_sandbox_by_id_exec(made.id, request).to_dict()
    api.post_sandbox_by_id_exec(made.id, cloud.SandboxExecRequest(command="echo >'a file'; mkdir dir"))
    report["get_sandbox_by_id_fs"] = api.get_sandbox_by_id_fs_without_preload_content(made.id).data.decode()
    report["post_sandbox_by_id_fs"] = refusal(api.post_sandbox_by_id_fs, made.id)  # the client cannot name a path

    # The verbs
    leased = api.lease_sandbox(cloud.SandboxLeaseIn(var_class="dev", project="published client", ttl_sec=600, disk=True))
    assert leased is not None and leased.id is not None
    report["lease_sandbox"] = leased.to_dict()
    report["lease_sandbox again"] = api.lease_sandbox(cloud.SandboxLeaseIn(id=leased.id)).to_dict()
    data = bytes(range(256))
    wrote = api.write_sandbox_file(cloud.SandboxWriteIn(id=leased.id, path="dir/file", data=base64.b64encode(data).decode()))
    report["write_sandbox_file"] = wrote.to_dict()
    blob = api.read_sandbox_file(cloud.SandboxPathIn(id=leased.id, path="dir/file"))
    report["read_sandbox_file"] = {"dir": blob.dir, "path": blob.path, "exact": base64.b64decode(blob.data) == data}
    report["read_sandbox_file of a directory"] = api.read_sandbox_file(cloud.SandboxPathIn(id=leased.id, path="")).to_dict()
    run = cloud.SandboxRunIn(id=leased.id, command="echo s3cret-value; pwd", blind=["s3cret-value"], session="x", events=True)
    report["run_in_sandbox"] = api.run_in_sandbox(run).to_dict()
    report["stop_run"] = stop(api, leased.id)

    # The terminal: a page and a socket, which the client only names; without a ticket the socket is refused
    report["post_sandbox_by_id_terminal_ticket"] = api.post_sandbox_by_id_terminal_ticket(made.id).to_dict()
    page = api.get_sandbox_by_id_terminal_without_preload_content(made.id)
    report["get_sandbox_by_id_terminal"] = [page.status, page.headers["Content-Type"]]
    report["get_sandbox_by_id_terminal_ws"] = refusal(api.get_sandbox_by_id_terminal_ws, made.id)

    # What comes later
    for name in expected_gaps:
        arguments = [made.id] if name != "post_sandbox_by_id_preview" else [made.id, cloud.SandboxPreviewIn(port=8000)]
        report[name] = getattr(api, f"{name}_without_preload_content")(*arguments).status

    # The end
    report["end_sandbox"] = api.end_sandbox_with_http_info(cloud.SandboxEndIn(id=leased.id, purge=True)).status_code
    report["delete_sandbox_by_id"] = api.delete_sandbox_by_id_with_http_info(made.id, purge="1").status_code
    report["errors"] = {
        "gone": refusal(api.get_sandbox_by_id, made.id),
        "ended": refusal(api.end_sandbox, cloud.SandboxEndIn(id=leased.id)),
        "empty id": refusal(api.get_sandbox_by_id, ""),
        "bad class": refusal(api.post_sandbox, cloud.SandboxSandboxIn(var_class="android")),
        "no key": refusal(cloud.SandboxApi(cloud.ApiClient(cloud.Configuration(host=url))).get_sandbox),
    }
    return report


def stop(api: Any, pk: str) -> dict[str, Any]:
    """Stop a command that waits, from another thread."""
    answers: dict[str, Any] = {}
    api.run_in_sandbox(cloud.SandboxRunIn(id=pk, command="mkfifo /tmp/began"))

    def wait() -> None:
        answers["run"] = refusal(api.run_in_sandbox, cloud.SandboxRunIn(id=pk, command="echo x >/tmp/began; sleep 600"))

    thread = threading.Thread(target=wait)
    thread.start()
    api.run_in_sandbox(cloud.SandboxRunIn(id=pk, command="cat /tmp/began"))
    answers["stopped"] = api.stop_run(cloud.SandboxStopIn(id=pk)).stopped
    thread.join()
    answers["idle"] = api.stop_run(cloud.SandboxStopIn(id=pk)).stopped
    return answers


def refusal(call: Any, *arguments: Any) -> list[Any]:
    """How the client tells that ``call`` was refused: its exception's class, the status, and the problem's code."""
    try:
        call(*arguments)
    except ApiException as error:
        known = (BadRequestException, NotFoundException, ServiceException, UnauthorizedException)
        kind = next((kind.__name__ for kind in known if isinstance(error, kind)), type(error).__name__)
        return [kind, error.status, json.loads(error.body)["code"]]
    return ["no exception"]


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout)
