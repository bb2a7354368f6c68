"""An HTTP server on this machine that misbehaves as a test asks."""

import hashlib
import threading
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from penstock.datasets.fetch.download import Checksum, Download

CONTENT = bytes(range(256)) * 12_000  # 3 MB: several blocks


class Manners(BaseHTTPRequestHandler):
    """Serve one content; what goes wrong is set by a test."""

    def __init__(self, server: "Server", *arguments: Any) -> None:
        self.asked = server
        super().__init__(*arguments)

    def do_GET(self) -> None:
        at = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-")
        start = int(at) if self.asked.ranges else 0
        self.asked.starts.append(start)
        if self.asked.status != 200 or start >= len(self.asked.content):
            self.send_error(416 if start else self.asked.status)
            return
        self.send_response(206 if start else 200)
        if self.asked.tells_length:
            self.send_header("Content-Length", str(len(self.asked.content) - start))
        self.end_headers()
        end = len(self.asked.content) if self.asked.cut_at is None else self.asked.cut_at
        middle = min(end, max(start, 2_000_000))
        self.wfile.write(self.asked.content[start:middle])
        self.asked.goes_on.wait(20)
        with suppress(OSError):  # whoever asked may be gone
            self.wfile.write(self.asked.content[middle:end])

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Server:
    """A server on a free port of this machine, and how it behaves."""

    def __init__(self) -> None:
        self.content, self.status, self.ranges, self.tells_length = CONTENT, 200, True, True
        self.cut_at: int | None = None
        self.starts: list[int] = []
        self.goes_on = threading.Event()  # while it is not set, a download stops at 2 MB
        self.goes_on.set()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Manners, self))
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def file(self, content: bytes = CONTENT, **changes: Any) -> Download:
        checksum = Checksum("sha256", hashlib.sha256(content).hexdigest())
        url = f"http://127.0.0.1:{self.http.server_port}/set.bin"
        return Download(**({"url": url, "file": "set.bin", "checksum": checksum, "size_bytes": len(content)} | changes))

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()
