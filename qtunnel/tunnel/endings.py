"""Why a client's connection ended, as a reason to act on and as a sentence for a person."""

from __future__ import annotations

from typing import Final

from qtunnel.burst import Address, address_text
from qtunnel.quic.events import CloseCause, ConnectionClosed
from qtunnel.tunnel.events import CloseReason

__all__ = ["H3_NO_ERROR", "H3_REQUEST_CANCELLED", "H3_REQUEST_REJECTED", "describe_close"]

H3_NO_ERROR: Final = 0x100
H3_REQUEST_REJECTED: Final = 0x10B
"""Closes a connection whose user has connected anew, or whose request was refused (RFC 9114 §8.1)."""
H3_REQUEST_CANCELLED: Final = 0x10C
_MQVPN_REFUSAL: Final = 0x106
"""What an mqvpn server closes with instead of answering: wrong key, headers it dislikes, or no room."""


def describe_close(event: ConnectionClosed, *, was_up: bool, remote: Address) -> tuple[CloseReason, str]:
    """Return why the connection ended, and a sentence for a person."""
    where = address_text(remote)
    match event.cause:
        case CloseCause.HANDSHAKE_TIMEOUT:
            return CloseReason.NO_ANSWER, f"no answer from {where}"
        case CloseCause.IDLE_TIMEOUT:
            return CloseReason.IDLE, f"nothing heard from {where} for the idle timeout"
        case CloseCause.STATELESS_RESET:
            return CloseReason.RESET, f"the server at {where} no longer knows this connection; has it restarted?"
        case CloseCause.NOT_VERIFIED:
            return CloseReason.NOT_VERIFIED, f"the server at {where} could not be verified: {event.reason}"
        case CloseCause.TLS_ALERT:
            return CloseReason.TLS, f"the TLS handshake with {where} failed: {event.reason}"
        case CloseCause.LOCAL:
            return CloseReason.PROTOCOL, f"closed the connection to {where}: {event.reason}"
        case CloseCause.PEER:
            return _describe_peer_close(event, was_up=was_up, where=where)


def _describe_peer_close(event: ConnectionClosed, *, was_up: bool, where: str) -> tuple[CloseReason, str]:
    said = f"{event.reason}, " if event.reason else ""
    text = f"the server at {where} closed the connection ({said}code {event.error_code:#x})"
    if event.is_application and event.error_code == H3_REQUEST_REJECTED and was_up:
        return (
            CloseReason.REPLACED,
            f"the server at {where} closed this tunnel because the same user connected again from elsewhere. "
            "Give each device a user of its own",
        )
    if event.is_application and event.error_code == _MQVPN_REFUSAL and not was_up:
        return CloseReason.AUTHENTICATION, f"{text}; it refused the token or the request"
    if event.is_application and event.error_code == H3_NO_ERROR:
        return CloseReason.SHUTDOWN, text
    return CloseReason.PEER, text
