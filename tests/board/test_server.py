"""The web server: what it answers, what it refuses, how it ends."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cupola.board.server import byte_range, host_name, whole_number

SWEEP = """
iterations = 20
algorithms = ["cup"]
tasks = ["HopperSpeed"]
seeds = 3
"""


@pytest.fixture
def runs(tmp_path: Path, synthetic_sweep: Callable[..., None]) -> Path:
    synthetic_sweep(tmp_path / "sweep", SWEEP)
    return tmp_path / "sweep"


def everything(path: Path) -> dict[str, tuple[int, bytes]]:
    """All files with their times: whatever is written would show."""
    return {
        str(file): (file.stat().st_mtime_ns, file.read_bytes() if file.is_file() else b"")
        for file in sorted([path, *path.rglob("*")])
    }


def test_it_answers_reads_alone_writes_nothing_and_ends_cleanly(runs: Path, board: Any) -> None:
    (runs / "cup-HopperSpeed-1" / "video.mp4").write_bytes(b"0123456789")
    before = everything(runs)
    one = board(runs)
    assert one.said == f"http://127.0.0.1:{one.port}/ shows {runs}; Ctrl-C ends it\n"
    state = one.wait(3)
    assert [row["name"] for row in state["rows"]] == [f"cup-HopperSpeed-{i}" for i in range(3)]
    assert one.state()["directory"] == str(runs)
    again = json.loads(one.ask(f"/state?since={state['version']}").body)
    assert again["rows"] == []
    ids = state["order"]
    curves = json.loads(one.ask(f"/curves?run={ids[0]}&run={ids[2]}&run={ids[0]}").body)
    assert [found["id"] for found in curves] == [ids[0], ids[2]]
    film = one.ask(f"/video?run={ids[1]}")
    assert (film.status, film.getheader("Content-Type")) == (200, "video/mp4")
    assert film.body == b"0123456789"
    assert one.ask(f"/video?run={ids[0]}").status == 404
    part = one.ask(f"/video?run={ids[1]}", Range="bytes=2-4")
    assert (part.status, part.body) == (206, b"234")
    assert part.getheader("Content-Range") == "bytes 2-4/10"

    page = one.ask("/")
    policy = page.getheader("Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert page.getheader("X-Content-Type-Options") == "nosniff"
    assert page.getheader("Access-Control-Allow-Origin") is None
    assert b"http://" not in page.body.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in page.body

    code, said = one.stop()
    assert (code, said) == (0, "JAX is imported: False\n")
    assert everything(runs) == before


def test_only_get_is_answered(runs: Path, board: Any) -> None:
    one = board(runs)
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "X"):
        answer = one.ask("/", method, "x=1" if method != "TRACE" else None)
        assert (answer.status, answer.getheader("Allow")) == (405, "GET")
    assert one.ask("/").status == 200


def test_nothing_but_its_own_addresses(runs: Path, board: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    one = board(runs)
    for path in (
        *("/sweep.json", "/cup-HopperSpeed-0/config.json", "/../secret", "/%2e%2e/secret"),
        *("//etc/passwd", "/state/", "/video/../secret", "/favicon.ico"),
    ):
        assert one.ask(path).status == 404, path
    for run in ("../secret", "cup-HopperSpeed-0", "%2e%2e", "", "0" * 12):
        assert one.ask(f"/video?run={run}").status == 404
        assert one.ask(f"/curves?run={run}").body == b"[]"
    assert one.ask("/state?since=nonsense").status == 200
    assert one.ask("/curves?" + "run=x&" * 5000).status == 400
    assert one.ask("x://[").status == 400
    assert one.ask("/").status == 200  # still there


def test_other_hosts_are_refused(runs: Path, board: Any) -> None:
    """A page of evil.example whose name leads here (DNS rebinding) says so in its Host."""
    one = board(runs)
    for good in ("127.0.0.1", "localhost", f"localhost:{one.port}", "localhost:9", "[::1]:80"):
        assert one.ask("/state", Host=good).status == 200, good
    for bad in (
        *("evil.example", f"evil.example:{one.port}", "127.0.0.1.evil.example", ""),
        *("localhost.evil.example", "evil@localhost.x", "[::1", "127.0.0.1@evil.example"),
    ):
        answer = one.ask("/state", Host=bad)
        assert (answer.status, answer.body) == (
            403,
            f"write {one.url} to see this board.\n".encode(),
        )
    with socket.create_connection(("127.0.0.1", one.port), timeout=30) as raw:
        raw.sendall(b"GET /state HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert raw.recv(20).startswith(b"HTTP/1.1 403")
    # It listens on the loopback alone.
    with socket.socket() as elsewhere:
        elsewhere.settimeout(5)
        own = socket.gethostbyname(socket.gethostname())
        if not own.startswith("127."):
            assert elsewhere.connect_ex((own, one.port)) != 0


def test_a_termination_signal_ends_it_as_well(runs: Path, board: Any) -> None:
    assert board(runs).stop(signal.SIGTERM)[0] == 0


def test_what_is_wrong_is_one_sentence(complaint, tmp_path: Path) -> None:
    assert "there is no directory nowhere: write 'cupola board DIR'" in complaint(
        "board", "nowhere"
    )
    assert "there is no directory runs" in complaint("board")
    assert "port must be from 0 to 65535" in complaint("board", tmp_path, "--port", "99999")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = complaint("board", tmp_path, "--port", str(port))
    assert f"cannot use port {port} (Address already in use): choose another with --port" in said


def test_small_things() -> None:
    assert [host_name(host) for host in ("LOCALHOST:80", "[::1]", "a:b:c", "[x")] == [
        *("localhost", "::1", "a", None),
    ]
    ranges = ("bytes=0-", "bytes=9-99", "bytes=10-", "bytes=5-4", "bytes=-3", "", "bytes=0-1,4-5")
    assert [byte_range(text, 10) for text in ranges] == [(0, 10), (9, 10), *[None] * 5]
    assert [whole_number(text) for text in ("12", "-1", "1e9", "9" * 30, "٣")] == [12, 0, 0, 0, 0]
