# SPDX-License-Identifier: Apache-2.0
"""Another program that holds a port: `python holds_port.py FOLDER HOW PORT`; it writes FOLDER/holds when it does."""

import socket
import sys
import threading
import time
from pathlib import Path

import torch.distributed as dist


def listener(port, serve, backlog=16):
    """Serve each connection in a thread, as long as this process lives."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(backlog)
    held = []

    def accept():
        while True:
            try:
                held.append(server.accept()[0])
            except OSError:
                return
            serve(held[-1])

    if serve is not None:
        threading.Thread(target=accept, daemon=True).start()
    return server


def mute(port):
    return [listener(port, lambda connection: None)]


def closes(port):
    return [listener(port, lambda connection: connection.close())]


def http(port):
    def answer(connection):
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        connection.close()

    return [listener(port, answer)]


def chatters(port):
    return [listener(port, lambda connection: connection.sendall(b"\1" * 4096))]


def full(port):
    server = listener(port, None, backlog=1)
    waiting = [socket.socket() for _ in range(4)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
    return [server, *waiting]


def store(port):
    return [dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)]


def store_of_a_run(port):
    """What another run of two ranks has left in its store."""
    (found,) = store(port)
    found.set("truestep/word/0", "a")
    found.set("truestep/word/1", "b")
    found.set("truestep/offer", '{"name": "c", "words": ["a", "b"]}')
    found.set("truestep/agreed/c", "1")
    return [found]


if __name__ == "__main__":
    held = globals()[sys.argv[2]](int(sys.argv[3]))
    (Path(sys.argv[1]) / "holds").touch()
    time.sleep(120)
