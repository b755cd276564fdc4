"""Tell the service manager how far we are (sd_notify(3)); without one, nothing happens."""

from __future__ import annotations

import contextlib
import os
import socket

__all__ = ["notify_service_manager"]


def notify_service_manager(state: str) -> None:
    """Send one state such as READY=1. Never raises: the tunnel does not depend on it."""
    target = os.environ.get("NOTIFY_SOCKET", "")
    if target[:1] not in ("/", "@"):
        return
    address = f"\0{target[1:]}" if target[0] == "@" else target
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        notifier.sendto(state.encode(), address)
