"""The board's web server: on this machine alone, for reading alone.

- It listens on the loopback, and answers only requests for a host of that name: a page of somebody
  else's, whose name was made to lead here (DNS rebinding), is refused.
- It knows four addresses. None of them holds a path: runs go by a digest of their names.
- The page loads nothing from elsewhere, and runs the script that came with it and no other.
"""

from __future__ import annotations

import json
import re
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cupola.board.library import Library
from cupola.errors import CupolaError
from cupola.reports import panels
from cupola.reports.page import PALETTE_SIZE, asset, content_hash, embed, fill

ADDRESS = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost", "::1")
MOST_RUNS = 500
"""Whose curves are asked for at a time."""


class Board(ThreadingHTTPServer):
    """Serves a library; every request has a thread of its own, which ends with the process."""

    daemon_threads = True

    def __init__(self, library: Library, port: int) -> None:
        self.library = library
        style = asset("page.css") + asset("board.css", "cupola.board")
        script = asset("charts.js") + asset("board.js", "cupola.board")
        self._filled = {"css": style, "js": script}
        self._template = asset("board.html", "cupola.board")
        self.policy = (
            "default-src 'none'; img-src 'self' data:; media-src 'self'; connect-src 'self';"
            f" style-src 'sha256-{content_hash(style)}';"
            f" script-src 'sha256-{content_hash(script)}';"
            " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        """What the browser is allowed to do with the page."""
        # On Windows it would let any other program have the port as well.
        self.allow_reuse_address = sys.platform != "win32"
        super().__init__((ADDRESS, port), Handler)

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def page(self) -> bytes:
        """The page, with what is known so far."""
        looks = [panels.style(i)._asdict() for i in range(PALETTE_SIZE)]
        data = {"palette": looks, "state": self.library.state(0)}
        return fill(self._template, self._filled | {"data": embed(data)}).encode()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is nothing to speak of."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: Board
    server_version, sys_version = "cupola", ""
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        host = self.headers.get_all("Host") or []
        if len(host) != 1 or host_name(host[0]) not in HOSTS:
            self._refuse(HTTPStatus.FORBIDDEN, f"write {self.server.url} to see this board.")
            return
        try:
            address = urlsplit(self.path)
            asked = parse_qs(address.query, max_num_fields=2 * MOST_RUNS)
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is no address.")
            return
        library = self.server.library
        if address.path == "/":
            self._answer(self.server.page(), "text/html; charset=utf-8")
        elif address.path == "/state":
            self._json(library.state(whole_number(asked.get("since", ["0"])[0])))
        elif address.path == "/curves":
            self._json(library.curves(asked.get("run", [])[:MOST_RUNS]))
        elif address.path == "/video":
            self._video(asked.get("run", [""])[0])
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing of this name.")

    def __getattr__(self, name: str) -> Any:
        """All other methods."""
        if name.startswith("do_"):
            sentence = "a board is only read: use GET."
            return lambda: self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, sentence, {"Allow": "GET"})
        raise AttributeError(name)

    def _video(self, run: str) -> None:
        try:
            found = self.server.library.video(run)
        except CupolaError:
            found = None
        if found is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no video of this run.")
            return
        data, kind = found
        part = byte_range(self.headers.get("Range", ""), len(data))
        if part is None:
            self._answer(data, kind)
        else:  # some browsers play no film without it
            first, end = part
            more = {"Content-Range": f"bytes {first}-{end - 1}/{len(data)}"}
            self._answer(data[first:end], kind, HTTPStatus.PARTIAL_CONTENT, more)

    def _json(self, data: Any) -> None:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
        self._answer(text.encode("ascii"), "application/json")

    def _refuse(
        self, status: HTTPStatus, sentence: str, more: dict[str, str] | None = None
    ) -> None:
        self.close_connection = True  # what else was sent is not read
        self._answer(f"{sentence}\n".encode(), "text/plain; charset=utf-8", status, more)

    def _answer(
        self,
        body: bytes,
        kind: str,
        status: HTTPStatus = HTTPStatus.OK,
        more: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        headers = {
            **(more or {}),
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": self.server.policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Requests are not news."""


def host_name(host: str) -> str | None:
    """Of a Host header, without its port: a tunnel may have another one."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """The first byte and the end of the one range that is asked for; None for all."""
    found = re.fullmatch(r"bytes=(\d{1,12})-(\d{0,12})", header, re.ASCII)
    if found is None:
        return None
    first, end = int(found[1]), min(size, int(found[2] or size - 1) + 1)
    return (first, end) if first < end else None


def whole_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
