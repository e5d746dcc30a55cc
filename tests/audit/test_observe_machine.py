"""What a machine is: its microcode, and the cloud instance that a local service reports."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kongming.probes.machine import Instance, cloud_instance, microcode
from tests.audit.recordings import OBSERVE, Recording

ROOMY_S = 5.0
"""For services that answer at once: the machines that run tests may be slow."""

Answer = Callable[["Handler"], "tuple[int, str, dict[str, str]] | None"]


class Handler(BaseHTTPRequestHandler):
    """Answers as ``answer`` says; None means that it did so itself."""

    answer: Answer

    def do_GET(self) -> None:
        response = type(self).answer(self)
        if response is None:
            return
        status, text, headers = response
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def service(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """A metadata service: its address, and the requests that it got."""
    requests: list[str] = []

    def noting(handler: Handler) -> tuple[int, str, dict[str, str]] | None:
        requests.append(f"{handler.command} {handler.path}")
        return answer(handler)

    handler_class = type("NotingHandler", (Handler,), {"answer": staticmethod(noting)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_class)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ec2(handler: Handler) -> tuple[int, str, dict[str, str]]:
    """IMDSv2: nothing without a token, and a token by PUT alone."""
    if handler.path == "/latest/api/token":
        given = handler.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        good = handler.command == "PUT" and given is not None
        return (200, "TOKEN==", {}) if good else (400, "", {})
    if handler.headers.get("X-aws-ec2-metadata-token") != "TOKEN==":
        return 401, "", {}
    metadata = {
        "instance-type": "m1.small",
        "instance-id": "i-0abc",
        "placement/availability-zone": "us-east-1a",
    }
    text = metadata.get(handler.path.removeprefix("/latest/meta-data/"))
    return (404, "", {}) if text is None else (200, text, {})


def gce(handler: Handler) -> tuple[int, str, dict[str, str]]:
    if handler.headers.get("Metadata-Flavor") != "Google":
        return 403, "", {}
    metadata = {
        "machine-type": "projects/77/machineTypes/n2-standard-2",
        "id": "123456",
        "zone": "projects/77/zones/europe-west1-b",
    }
    text = metadata.get(handler.path.removeprefix("/computeMetadata/v1/instance/"))
    flavour = {"Metadata-Flavor": "Google"}
    return (404, "", flavour) if text is None else (200, text, flavour)


def azure(handler: Handler) -> tuple[int, str, dict[str, str]]:
    if handler.headers.get("Metadata") != "true" or "api-version=" not in handler.path:
        return 400, "", {}
    metadata = {"vmSize": "Standard_D2s_v5", "vmId": "aa-bb", "location": "westeurope", "zone": "2"}
    return 200, json.dumps(metadata), {}


@pytest.mark.parametrize(
    ("answer", "instance"),
    [
        (ec2, Instance("ec2", "m1.small", "i-0abc", "us-east-1a")),
        (gce, Instance("gce", "n2-standard-2", "123456", "europe-west1-b")),
        (azure, Instance("azure", "Standard_D2s_v5", "aa-bb", "westeurope-2")),
    ],
)
def test_each_cloud_tells_what_instance_it_is(answer: Answer, instance: Instance) -> None:
    with service(answer) as (address, requests):
        assert cloud_instance(address, ROOMY_S) == instance
    words = " ".join(requests).lower()
    # What would be a secret is never asked for.
    for secret in ("credential", "identity", "iam", "user-data", "service-accounts", "recursive"):
        assert secret not in words


@pytest.mark.parametrize(
    "answer",
    [
        lambda handler: (404, "", {}),
        lambda handler: (200, "<html>Log in to this network</html>", {}),
        lambda handler: (200, "", {}),
        lambda handler: (200, "x" * 100_000, {}),
    ],
)
def test_what_is_no_metadata_service_is_no_instance(answer: Answer) -> None:
    with service(answer) as (address, _):
        assert cloud_instance(address, ROOMY_S) is None


def test_nobody_there_is_no_instance() -> None:
    with service(ec2) as (address, _):
        pass
    assert cloud_instance(address, ROOMY_S) is None


@pytest.mark.parametrize("drip", [False, True])
def test_a_slow_service_is_not_waited_for(drip: bool) -> None:
    through = threading.Event()

    def slow(handler: Handler) -> None:
        try:
            while not through.wait(0.02):
                if drip:
                    handler.wfile.write(b"H")
        except OSError:
            pass

    with service(slow) as (address, _):
        # The service goes on answering until it is ended below.
        assert cloud_instance(address, 0.2) is None
        through.set()


def test_microcode(tmp_path: Path) -> None:
    assert microcode(tmp_path) is None
    (tmp_path / "proc").mkdir()
    text = "processor\t: 0\nmicrocode\t: 0x2b000603\nflags\t\t: fpu\n"
    (tmp_path / "proc/cpuinfo").write_text(text, encoding="utf-8")
    assert microcode(tmp_path) == "0x2b000603"


def test_a_recording_keeps_the_instance(tmp_path: Path, kongming_env: dict[str, str]) -> None:
    recording = Recording(tmp_path, kongming_env)
    args = [arg for arg in OBSERVE if arg != "--no-metadata"]
    with service(ec2) as (address, requests):
        recording.env["KONGMING_METADATA"] = address
        instance = None
        # The bound holds in the test too: a slow machine has an instance in some recordings alone.
        for _ in range(20):
            assert recording.run("--for", "0.3s", args=args).returncode == 0
            (session,) = recording.read().sessions.values()
            instance = session["instance"]
            if instance is not None:
                break
            recording.out.unlink()
        assert instance == {
            "provider": "ec2",
            "type": "m1.small",
            "id": "i-0abc",
            "zone": "us-east-1a",
        }
        before = len(requests)
        recording.out.unlink()
        assert recording.run("--for", "0.3s").returncode == 0
        assert len(requests) == before
