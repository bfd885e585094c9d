"""``deploy/`` whole: two replicas of the control plane as pods of the node, on PostgreSQL, lease sandboxes over the REST API."""

from __future__ import annotations

import base64
import http.cookiejar
import re
import secrets
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from harness.client import Api as Client
from harness.client import Lease
from harness.manifests import Deployed, Manifest, deployed, one
from harness.pods import IMAGE
from harness.server import ROOT
from harness.waiting import until

from .faults import Node
from .fixtures import bring_image
from .pods import execute

HOST = "sandboxes.example.org"
#: What an ingress controller says of a request.
FORWARDED = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Host": HOST, "X-Forwarded-Proto": "https"}
_START_MOST = 240.0  #: seconds until both replicas must be ready, on a machine under load


class Ingress(Client):
    """The API of one replica, as an ingress controller passes requests on to it."""

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        return super().request(method, path, **{**options, "headers": {**FORWARDED, **options.get("headers", {})}})


def on_node(node: Node, *command: str) -> list[str]:
    """``command`` in the node's network."""
    return ["nsenter", "--net", "--target", (node.state / "init.pid").read_text().strip(), *command]


@contextmanager
def beside(*command: str) -> Iterator[str]:
    """The first line that ``command`` prints; it runs meanwhile."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def address(there: Deployed) -> str:
    """The node's, which pods and the machine reach."""
    found = re.fullmatch(r"https://(.*):6443", there.api.server)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def there(kubeconfig: Path, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """All but the replicas, whose image is on the node."""
    there = Deployed(kubeconfig)
    server = one("Deployment", there.found)["spec"]["template"]["spec"]["containers"][0]
    assert bring_image(node, "control-plane", tmp_path_factory.mktemp("archive")) == server["image"]
    settings = one("ConfigMap", there.found)["data"]
    settings["SANDBOXHUB_IMAGE"] = IMAGE
    del settings["SANDBOXHUB_CLASS_IMAGES"]  # test_class_image.py has them
    with deployed(there):
        yield there


@pytest.fixture(scope="module")
def control_plane(there: Deployed, node: Node, address: str) -> Iterator[Deployed]:
    """Both replicas are ready."""
    bind = f"POSTGRESQL_ADDRESS={address}"
    with beside(*on_node(node, "env", bind, str(ROOT / "tests/postgresql"), "sh", "-c", 'echo "$DATABASE_URL"; exec sleep 1000000')) as url:
        values = {"secret_key": secrets.token_urlsafe(48), "database_url": url}
        data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
        there.api.create(there.path(there.control_plane, "secrets"), {"metadata": {"name": "sandboxhub"}, "data": data})
        deployment = one("Deployment", there.found)
        in_this_cluster(deployment, there, address)
        there.apply(deployment)
        both(there)
        yield there


def in_this_cluster(deployment: Manifest, there: Deployed, address: str) -> None:
    """What an admin's patch would say here: another namespace, and no kube-proxy, which lets pods reach the API server's Service."""
    pod = deployment["spec"]["template"]["spec"]
    changed = {"SANDBOXHUB_NAMESPACE": there.sandboxes, "KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": "6443"}
    for container in (*pod["initContainers"], *pod["containers"]):
        kept = [variable for variable in container["env"] if variable["name"] not in changed]
        container["env"] = kept + [{"name": name, "value": value} for name, value in changed.items()]


def replicas(there: Deployed) -> list[dict[str, Any]]:
    """The pods of the server."""
    found: list[dict[str, Any]] = there.api.get(there.path(there.control_plane, "pods"))["items"]
    return found


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def both(there: Deployed) -> list[dict[str, Any]]:
    """Two replicas that are ready."""

    def ready() -> list[dict[str, Any]]:
        found = [pod for pod in replicas(there) if is_ready(pod)]
        return found if len(found) == 2 else []

    try:
        return until(ready, seconds=_START_MOST)
    except AssertionError:
        raise AssertionError("\n".join(map(told, replicas(there)))) from None


def log(there: Deployed, pod: dict[str, Any]) -> str:
    path = there.path(there.control_plane, f"pods/{pod['metadata']['name']}/log?container=server")
    text: bytes = there.api.get(path)
    return text.decode()


def told(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['name']}: {pod['status'].get('initContainerStatuses')} {pod['status'].get('containerStatuses')}"


def manage(there: Deployed, pod: dict[str, Any], *arguments: str) -> str:
    """As deploy/README.md has it."""
    command = (".venv/bin/python", "manage.py", *arguments)
    output, status = execute(there.api, there.path(there.control_plane, f"pods/{pod['metadata']['name']}"), *command)
    assert status["status"] == "Success", output
    return output.strip()


@contextmanager
def reached(node: Node, address: str, pod: dict[str, Any]) -> Iterator[str]:
    """The URL of a replica, on the machine."""
    script = str(Path(__file__).with_name("forward.py"))
    with beside(*on_node(node, sys.executable, script, address, pod["status"]["podIP"], "8000")) as port:
        yield f"http://{address}:{port}"


def test_it_leases_sandboxes(control_plane: Deployed, node: Node, address: str):
    there = control_plane
    stopped, other = both(there)
    key = manage(there, other, "createkey", "acme").splitlines()[-1]
    with ExitStack() as stack:
        first, second = (Ingress(stack.enter_context(reached(node, address, pod)), key) for pod in (stopped, other))
        lease = first.create(runtime="gvisor")
        assert lease.sh("echo $((6 * 7))") == "42\n"
        same = Lease(second, lease.id, lease.body)  # any replica serves any lease
        same.write("file", b"kept")
        assert lease.read("file") == b"kept"

        # A replica that is stopped answers what it has begun.
        answers: list[dict[str, Any]] = []
        long = threading.Thread(target=lambda: answers.append(lease.exec(command="touch begun; sleep 8; echo done")))
        long.start()
        until(lambda: second.get(same.file("begun")).status_code == 200)
        there.api.delete(there.path(there.control_plane, f"pods/{stopped['metadata']['name']}"))
        long.join()
        assert [answer["stdout"] for answer in answers] == ["done\n"]
        assert same.read("file") == b"kept"
        same.end(purge=True)
        assert lease.container not in [pod["metadata"]["name"] for pod in there.api.get(there.path(there.sandboxes, "pods"))["items"]]


def test_it_warns_that_sandboxes_get_out(control_plane: Deployed, node: Node, address: str):
    there = control_plane
    pod = both(there)[0]
    until(lambda: "Sandboxes are not cut off from the network" in log(there, pod), seconds=_START_MOST)
    code = "from django.contrib.auth import get_user_model as u; u().objects.create_superuser('ann', password='correct horse battery')"
    manage(there, pod, "shell", "-c", code)
    secure = http.cookiejar.DefaultCookiePolicy(secure_protocols=("http", "https"))  # TLS ends ahead of it
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar(secure))
    browser = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
    browser.addheaders = [*FORWARDED.items(), ("Referer", f"https://{HOST}/")]
    with reached(node, address, pod) as url:
        form = browser.open(f"{url}/admin/login/", timeout=60).read().decode()
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token
        fields = {"username": "ann", "password": "correct horse battery", "csrfmiddlewaretoken": token[1], "next": "/admin/"}
        page = browser.open(f"{url}/admin/login/", urlencode(fields).encode(), timeout=60).read().decode()
    assert "Sandboxes are not cut off from the network" in page
    assert "the API server (" in page
