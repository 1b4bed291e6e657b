"""Tell systemd how the daemon is doing (sd_notify), without a library."""

import os
import socket


def notify(**fields: str | int) -> bool:
    """Send fields such as ``READY=1`` or ``STATUS=...`` to the service manager.

    Returns:
        Whether a manager listens: False when the daemon was not started by one.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    text = "\n".join(f"{key}={value}" for key, value in fields.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.connect(address)
            sock.sendall(text.encode())
        except OSError:
            # The manager going away must not stop a daemon that holds the board.
            return False
    return True
