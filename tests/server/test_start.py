"""How the server starts, by every door, and how it refuses to."""

import contextlib
import datetime
import json
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from harness.waiting import until

from .client import Hub, Raw
from .client import hub as start

APPLICATION = "tests.server.app:application"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def commands() -> dict[str, tuple[str, ...]]:
    port = str(free_port())
    return {
        "daphne": ("-m", "daphne", "-p", port, APPLICATION),
        "runserver": ("-m", "django", "runserver", "--noreload", "--skip-checks", port),
        "uvicorn": ("-m", "uvicorn", "--port", port, APPLICATION),
    }


def listen(server: Hub, port: int) -> Hub:
    """Wait until another command than ours, which prints no address, accepts connections."""
    server.port = port

    def accepts() -> bool:
        assert server.process.poll() is None, server.log
        with contextlib.suppress(ConnectionRefusedError):
            server.raw().close()
            return True
        return False

    until(accepts)
    return server


@pytest.mark.parametrize("name", ["daphne", "runserver", "uvicorn"])
def test_every_door_serves_the_same_application(name: str) -> None:
    command = commands()[name]
    port = int(next(part for part in command if part.isdigit()))
    with start(*command) as server:
        listen(server, port)
        response = server.raw().upgrade("/deny")
        assert (response.status, response.body) == (401, b'{"detail":"no"}')
        assert server.get("/django/thread").status == 200
        assert server.get("/").status == 200
        if name != "uvicorn":
            connection = server.raw().send("POST /store HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999\r\n\r\n")
            assert connection.response().problem["code"] == "too_large"
        socket = server.raw()
        socket.upgrade("/echo")
        server.terminate()
        assert socket.read_close()[0] in (1001, 1012)
        socket.close()
        if name != "uvicorn":  # it ends by its signal
            assert server.exit_code() == 0
        assert "lifespan shutdown" in server.log or name == "uvicorn"


def self_signed(directory: Path) -> str:
    """A Twisted endpoint's words for a new certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=1))
    (directory / "cert.pem").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    unprotected = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unprotected)
    (directory / "key.pem").write_bytes(pem)
    return f"privateKey={directory}/key.pem:certKey={directory}/cert.pem"


def test_tls_by_the_daphne_command(tmp_path: Path) -> None:
    port = free_port()
    with start("-m", "daphne", "-e", f"ssl:{port}:interface=127.0.0.1:{self_signed(tmp_path)}", APPLICATION) as server:
        listen(server, port)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])

        def connect() -> Raw:
            connection = server.raw()
            connection.socket = context.wrap_socket(connection.socket)
            return connection

        scope = json.loads(connect().send("GET / HTTP/1.1\r\nHost: t\r\n\r\n").response().body)
        assert scope["scheme"] == "https"
        assert len(connect().send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n").response().body) == 1600 * 65536 + 4
        refused = connect().send("POST /store HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999\r\n\r\n")
        assert refused.response().status == 413
        assert connect().upgrade("/deny").status == 401
        socket = connect()
        assert socket.upgrade("/flood").status == 101
        assert socket.read_close() == (4003, "the sandbox died")
        assert server.terminate().exit_code() == 0
        assert "Traceback" not in server.log


def test_taken_port_is_refused_with_a_plain_message() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with start("-m", "tests.server.run", str(port)) as server:
            assert server.exit_code() == 1
            assert server.log.splitlines()[-1] == f"Cannot listen on 127.0.0.1:{port}: Address already in use"
            assert "lifespan shutdown" in server.log and "Traceback" not in server.log


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("refuse", "The application refused to start: no engine can be used"),
        ("crash", "The application failed to start: boom at start"),
    ],
)
def test_application_that_can_not_start_is_not_served(mode: str, message: str) -> None:
    with start(TEST_LIFESPAN=mode) as server:
        assert server.exit_code() == 1
        assert server.log.splitlines()[-1] == message
        assert "listening" not in server.log and "Traceback" not in server.log


def test_daphne_command_fails_too() -> None:
    with start(*commands()["daphne"], TEST_LIFESPAN="refuse") as server:
        assert server.exit_code() == 1
        assert "The application refused to start" in server.log


def test_application_without_lifespan_is_served() -> None:
    with start(TEST_LIFESPAN="none") as server:
        assert server.ready().get("/").status == 200
        assert server.terminate().exit_code() == 0


def test_stop_while_the_application_starts() -> None:
    with start(TEST_LIFESPAN="hang") as server:
        server.line("starting")
        assert server.terminate().exit_code() == 0
