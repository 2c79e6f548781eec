"""How many connections there may be, and whose they are.

Every connection is an open file. A process that has none left cannot write its log either, so the
limit stays well below what the system allows.
"""

import resource
from contextlib import suppress
from urllib.parse import unquote


def raise_file_limit() -> None:
    """Allow this process as many open files as it may have; the usual soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def affordable(connections: int) -> int:
    """So many connections, or a third of the open files this process may have: of two listeners."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections if soft == resource.RLIM_INFINITY else min(connections, soft // 3)


def client_of_http_peer(peer: object) -> str:
    """The address of a peer without its port, which is another for every connection."""
    return str(peer[0]) if isinstance(peer, tuple) and peer else "unknown"


def client_of_grpc_peer(peer: str) -> str:
    """The address in what gRPC calls a peer: ``ipv4:127.0.0.1:4711``, ``ipv6:%5B::1%5D:4711``."""
    _, _, address = peer.partition(":")
    host, _, _ = unquote(address).rpartition(":")
    return host.strip("[]") or "unknown"
