# SPDX-License-Identifier: Apache-2.0
"""AddressInUse."""

from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Cause, Explainer, Match


class AddressInUse(Explainer):
    """The port of the rendezvous is taken.

    Means: another job on this machine, or a process left from the last one, listens on the same port.

    Raises:
        import socket

        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            dist.TCPStore("127.0.0.1", taken.getsockname()[1], 1, is_master=True)

    Works:
        store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)

    Fix: write torchrun --standalone (one node), which takes a free port, or another --master-port; end the processes of the
    last run (ss -ltnp shows who listens).
    """

    types = ("RuntimeError", "DistNetworkError", "DistStoreError")  # an OSError is some other server's
    messages = (
        r"EADDRINUSE",
        r"[Aa]ddress already in use",
        r"server socket has failed to (?:listen on any local network address|bind)",
    )
    anywhere = True
    checks = ("DIST012",)
    not_in_a_log = "which process listens there"

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        import re

        port = re.search(r"port: (\d+)|\[[^\]]*\]:(\d{2,5})", crash.text)
        return Cause(f"the port is {port[1] or port[2]}.") if port else None
