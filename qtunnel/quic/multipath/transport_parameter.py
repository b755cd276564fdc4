"""initial_max_path_id: whether both ends speak multipath, and the first limit on path ids (RFC 10069 §2.1)."""

from __future__ import annotations

from aioquic.buffer import encode_uint_var
from aioquic.quic.packet import QuicErrorCode

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.ack_frames import decode_varint
from qtunnel.quic.multipath.code_points import INITIAL_MAX_PATH_ID, MAX_PATH_ID
from qtunnel.quic.multipath.nonce import NONCE_SIZE

__all__ = ["check_offer", "encode_parameter", "find_parameter"]


def encode_parameter(initial_max_path_id: int) -> bytes:
    """Return the whole parameter, to be put behind others: id, length, value (RFC 9000 §18)."""
    value = encode_uint_var(initial_max_path_id)
    return encode_uint_var(INITIAL_MAX_PATH_ID) + encode_uint_var(len(value)) + value


def find_parameter(parameters: bytes) -> int | None:
    """Return the value in a peer's transport parameters; None: the peer does not speak multipath.

    parameters: as in the TLS extension. Never call it for those remembered with a session ticket: the value is
    not to be remembered.

    Raises: PeerProtocolError (TRANSPORT_PARAMETER_ERROR) for a value that cannot be, or a second one.
    """
    found = None
    at = 0
    try:
        while at < len(parameters):
            kind, at = decode_varint(parameters, at)
            size, at = decode_varint(parameters, at)
            end = at + size
            if end > len(parameters):
                raise ValueError("a transport parameter is cut short")
            if kind == INITIAL_MAX_PATH_ID:
                if found is not None:
                    raise ValueError("initial_max_path_id came twice")  # RFC 9000 §7.4
                found, at = decode_varint(parameters[:end], at)
                if at != end:
                    raise ValueError("initial_max_path_id is no single integer")
                if found > MAX_PATH_ID:
                    raise ValueError(f"initial_max_path_id {found}, {MAX_PATH_ID} is the largest there can be")
            at = end
    except ValueError as error:
        raise PeerProtocolError(str(error), error_code=QuicErrorCode.TRANSPORT_PARAMETER_ERROR) from error
    return found


def check_offer(*, peer_cid_size: int, local_cid_size: int, nonce_size: int = NONCE_SIZE) -> None:
    """Refuse a peer that offers multipath where it cannot be. Sizes in bytes.

    peer_cid_size: of the source connection id of the packet that carried the parameter.

    Raises: PeerProtocolError: PROTOCOL_VIOLATION without connection ids, TRANSPORT_PARAMETER_ERROR for a cipher
    whose nonce has no room for a path id.
    """
    if not peer_cid_size or not local_cid_size:
        raise PeerProtocolError(
            "multipath needs connection ids at both ends", error_code=QuicErrorCode.PROTOCOL_VIOLATION
        )
    if nonce_size < NONCE_SIZE:
        raise PeerProtocolError(
            f"a nonce of {nonce_size} bytes, multipath needs {NONCE_SIZE}",
            error_code=QuicErrorCode.TRANSPORT_PARAMETER_ERROR,
        )
