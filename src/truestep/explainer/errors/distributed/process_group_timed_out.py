# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ProcessGroupTimedOut(Explainer):
    """A process waited for others in a collective until its time was up, or the others were gone.

    Means: all ranks must call the same collectives in the same order; one left, failed, or waits elsewhere.

    Recorded:
        [rank2]:[E ProcessGroupNCCL.cpp:475] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12,
        OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.

    Fix: find the rank that is missing: its own log has the first error. If none failed: collectives under if rank == 0, loaders
    of different lengths (drop_last, DistributedSampler), or slow work on one rank (raise timeout=).

    Cases:
        `client socket` or `initializing` or `waiting for clients`: the ranks did not find each other at the start.
            Fix: check that MASTER_ADDR is reachable from every node, that the port is open, that as many processes were
            started as world_size says, and NCCL_SOCKET_IFNAME (GLOO_SOCKET_IFNAME).
        otherwise: the collective was number {number}, {collective}; another rank did not come to it.
    """

    types = ("RuntimeError", "DistBackendError", "DistStoreError", "DistNetworkError", "TimeoutError")
    messages = (
        r"Watchdog caught collective operation timeout: (?P<work>WorkNCCL\([^)]*(?:\)[^)]*)?\))",
        r"[Cc]ollective operation timeout|caught collective operation timeout",
        r"Timed out (?:after \d+ms )?waiting for? (?:clients|\d+ms|recv|send|the)",
        r"wait timeout after \d+ms",
        r"Socket Timeout",
        r"(?:Connection (?:closed by peer|reset by peer)|Broken pipe)[^\n]*(?:gloo|Rank|rank|peer \[)",
        r"gloo/transport/tcp/\w+\.cc:\d+\][^\n]*(?:Connection|Timed out|timed out|Read error)",
        r"The client socket has (?:timed out|failed to connect)",
        r"NCCL (?:communicator was aborted|error: remote process exited or there was a network error)",
        r"ncclRemoteError",
        r"Some NCCL operations have failed or timed out",
        r"failed to recv, got 0 bytes",
        r"Timed out initializing process group",
    )
    besides = (r"SeqNum=(?P<number>\d+), OpType=(?P<collective>\w+)",)
    anywhere = True
    is_consequence = True
    not_in_a_log = (
        "what the missing rank was doing, unless its lines are in it; py-spy dump --pid shows a live one"
    )
