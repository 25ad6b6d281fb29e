# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


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

    Cases:
        otherwise: the port is {port}.
        otherwise: the port is {other}.
    """

    types = ("RuntimeError", "DistNetworkError", "DistStoreError")  # an OSError is some other server's
    messages = (
        r"EADDRINUSE",
        r"[Aa]ddress already in use",
        r"server socket has failed to (?:listen on any local network address|bind)",
    )
    besides = (r"port: (?P<port>\d+)|\[[^\]]*\]:(?P<other>\d{2,5})",)
    anywhere = True
    not_in_a_log = "which process listens there"
