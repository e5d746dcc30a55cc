"""Two network namespaces with a veth pair between them are two hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest


def ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Names of two namespaces, 10.71.0.1 and 10.71.0.2."""
    names = (f"kma{os.getpid()}", f"kmb{os.getpid()}")
    if os.getuid() != 0 or any(ip("netns", "add", name).returncode for name in names):
        for name in names:
            ip("netns", "del", name)
        pytest.skip("network namespaces cannot be made here")
    first, second = (["netns", name] for name in names)
    made = ip("link", "add", "kmv0", *first, "type", "veth", "peer", "name", "kmv1", *second)
    for number, (name, link) in enumerate(zip(names, ("kmv0", "kmv1"), strict=True), start=1):
        ip("-n", name, "addr", "add", f"10.71.0.{number}/24", "dev", link)
        ip("-n", name, "link", "set", link, "up")
        ip("-n", name, "link", "set", "lo", "up")
    if made.returncode != 0:
        for name in names:
            ip("netns", "del", name)
        pytest.skip(f"a veth pair cannot be made here: {made.stderr.strip()}")
    yield names
    for name in names:
        ip("netns", "del", name)


def test_the_network_between_two_hosts_is_timed(hosts: tuple[str, str]) -> None:
    answering = (
        "import sys\nfrom kongming_agent.peers import Responder\n"
        "made = Responder('10.71.0.2:7403')\nprint('ready', flush=True)\nsys.stdin.read()\n"
    )
    timing = (
        "import json\nfrom dataclasses import asdict\nfrom kongming_agent.peers import time_peer\n"
        "print(json.dumps(asdict(time_peer('10.71.0.2:7403', most_bytes=1 << 22, most_s=0.5))))\n"
    )
    inside = ["ip", "netns", "exec"]
    server = subprocess.Popen(
        [*inside, hosts[1], sys.executable, "-c", answering],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        assert server.stdout.readline() == b"ready\n"
        done = subprocess.run(
            [*inside, hosts[0], sys.executable, "-c", timing],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait(timeout=20)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["round_trip_s"] > 0.0
    assert document["bytes_per_s"] > 0.0
