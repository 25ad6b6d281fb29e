# SPDX-License-Identifier: Apache-2.0
"""Stores for the tests: a folder, and a real S3 server on loopback."""

import os
import socket
import subprocess
import sys
import time
import uuid

import pytest


@pytest.fixture(autouse=True, scope="session")
def needs_obstore():
    pytest.importorskip("obstore", reason="a mirror needs truestep[remote]")


@pytest.fixture
def folder_store(tmp_path):
    return (tmp_path / "store").as_uri()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    pytest.importorskip("ministack", reason="needs ministack, an S3 server for tests")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path_factory.mktemp("s3")
    server = subprocess.Popen(
        [sys.executable, "-m", "ministack"],
        env={**os.environ, "GATEWAY_PORT": str(port), "HOME": str(home), "SERVICES": "s3"},
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None, "the S3 server has ended"
            time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        server.wait()


def environment_of_s3(monkeypatch, port: int) -> None:
    """Say where the server is, as a user would: in the environment alone."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "planted-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.fixture
def s3_store(s3_server, monkeypatch):
    import urllib.request

    environment_of_s3(monkeypatch, s3_server)
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    made = urllib.request.Request(f"http://127.0.0.1:{s3_server}/{bucket}", method="PUT")
    urllib.request.urlopen(made).close()
    return f"s3://{bucket}/runs/x"


@pytest.fixture(params=["folder", "s3"])
def store(request, folder_store, s3_server):
    """Each store in its turn; the server is named so that it is up before a test begins."""
    return folder_store if request.param == "folder" else request.getfixturevalue("s3_store")
