# SPDX-License-Identifier: Apache-2.0
"""A proxy on loopback through which little comes a second, or nothing at all; it counts the requests that begin."""

import socket
import threading
import time
from contextlib import suppress

METHODS = (b"PUT ", b"GET ", b"DELETE ", b"HEAD ", b"POST ")
CHUNK = 65536


class SlowProxy:
    """Forwards to a port; `bytes_per_second` limits what is sent there, `away()` ends all connections and takes no more.

    A request for what has `unanswered` in its path is not forwarded.
    """

    def __init__(self, port: int) -> None:
        self.bytes_per_second = float("inf")
        self.unanswered: bytes | None = None
        self.requests: list[bytes] = []
        self.bytes = 0
        self._to, self._is_away = port, False
        self._open: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def away(self) -> None:
        self._is_away = True
        self._end(*self._open)

    def back(self) -> None:
        self._is_away = False

    def close(self) -> None:
        self.away()
        self._end(self._socket)

    def _end(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            if self._is_away:
                self._end(client)
                continue
            server = socket.create_connection(("127.0.0.1", self._to))
            self._open += [client, server]
            for ends in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, to_server: bool) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                if to_server:
                    self.bytes += len(data)
                    self.requests += [data[:200]] if data.startswith(METHODS) else []
                    if self.unanswered and data.startswith(b"GET ") and self.unanswered in data.split()[1]:
                        continue
                    time.sleep(len(data) / self.bytes_per_second)
                target.sendall(data)
        self._end(source, target)
