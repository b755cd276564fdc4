"""Every private name of aioquic that qtunnel touches, each with its reason.

aioquic is pinned; its private names may go in any release. So they are listed here, checked against the installed
version by a test, and used only in the three modules beside this one, behind classes with public doors:

    _aioquic_plane.PlaneCore what the packet plane takes over, and what it leaves
    _aioquic_quic.QuicCore   a QUIC connection: own connection ids, bounds aioquic lacks, numbers it keeps
    _aioquic_h3.H3Core       an HTTP/3 connection: validation that RFC 9114 and RFC 9297 ask for and aioquic lacks

What is done with these doors is decided in connection.py and h3.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["PRIVATE_NAMES", "PrivateName"]


class PrivateName(NamedTuple):
    """One private attribute or method of aioquic, and why qtunnel needs it."""

    owner: str
    name: str
    reason: str


PRIVATE_NAMES: Final = (
    PrivateName("QuicConnection", "_QuicConnection__frame_handlers", "a cycle to break at the end"),
    PrivateName("QuicConnection", "_ack_eliciting_sent_since_receipt", "restart the idle timer as it does"),
    PrivateName("QuicConnection", "_add_network_path", "follow a client to a new address"),
    PrivateName("QuicConnection", "_close_at", "restart the idle timer as it does"),
    PrivateName("QuicConnection", "_close_end", "end in silence, as after a stateless reset"),
    PrivateName("QuicConnection", "_close_event", "why the connection ended"),
    PrivateName("QuicConnection", "_close_pending", "CONNECTION_CLOSE is built there"),
    PrivateName("QuicConnection", "_configuration", "length and idle timeout of a connection of its own"),
    PrivateName("QuicConnection", "_crypto_streams", "bound handshake data kept in memory"),
    PrivateName("QuicConnection", "_cryptos", "take the 1-RTT secrets, and seal what it builds"),
    PrivateName("QuicConnection", "_cryptos_initial", "a cycle to break at the end"),
    PrivateName("QuicConnection", "_datagrams_pending", "replaced by our bounded queue"),
    PrivateName("QuicConnection", "_find_network_path", "follow a client to a new address"),
    PrivateName("QuicConnection", "_handle_ack_frame", "refuse acknowledgements of packets never sent"),
    PrivateName("QuicConnection", "_handle_connection_close_frame", "tell the peer's close from ours"),
    PrivateName("QuicConnection", "_handle_crypto_frame", "bound handshake data kept in memory"),
    PrivateName("QuicConnection", "_handshake_complete", "state"),
    PrivateName("QuicConnection", "_handshake_confirmed", "packets may grow from then on"),
    PrivateName("QuicConnection", "_host_cid_seq", "issue connection ids of ours"),
    PrivateName("QuicConnection", "_host_cids", "issue connection ids of ours"),
    PrivateName("QuicConnection", "_idle_timeout", "restart the idle timer as it does"),
    PrivateName("QuicConnection", "_initialize", "choose the key exchange groups"),
    PrivateName("QuicConnection", "_is_client", "role"),
    PrivateName("QuicConnection", "_local_initial_source_connection_id", "issue connection ids of ours"),
    PrivateName("QuicConnection", "_local_max_data", "a flow control window that follows what was read"),
    PrivateName("QuicConnection", "_local_max_streams_bidi", "how many requests the peer may have opened"),
    PrivateName("QuicConnection", "_local_max_streams_uni", "as for bidirectional streams"),
    PrivateName("QuicConnection", "_logger", "log as one package, at DEBUG"),
    PrivateName("QuicConnection", "_loss", "numbers for statistics, packet size for congestion control"),
    PrivateName("QuicConnection", "_max_datagram_size", "grows after the handshake, and may fall"),
    PrivateName("QuicConnection", "_network_paths", "addresses in use, validation by Retry"),
    PrivateName("QuicConnection", "_on_connection_limit_delivery", "with _write_connection_limits"),
    PrivateName("QuicConnection", "_on_max_stream_data_delivery", "with _write_stream_limits"),
    PrivateName("QuicConnection", "_original_destination_connection_id", "from our random source"),
    PrivateName("QuicConnection", "_packet_number", "refuse acknowledgements of packets never sent"),
    PrivateName("QuicConnection", "_parse_transport_parameters", "max_udp_payload_size, ack_delay_exponent"),
    PrivateName("QuicConnection", "_payload_received", "tell a packet that opened from one that did not"),
    PrivateName("QuicConnection", "_peer_cid", "length in use, stateless reset tokens, first value"),
    PrivateName("QuicConnection", "_peer_cid_available", "stateless reset tokens"),
    PrivateName("QuicConnection", "_quic_logger", "our line-wise trace"),
    PrivateName("QuicConnection", "_remote_ack_delay_exponent", "aioquic parses it and keeps the default"),
    PrivateName("QuicConnection", "_remote_active_connection_id_limit", "issue connection ids of ours"),
    PrivateName("QuicConnection", "_remote_max_datagram_frame_size", "the peer's limit, which aioquic ignores"),
    PrivateName("QuicConnection", "_replenish_connection_ids", "issue connection ids of ours"),
    PrivateName("QuicConnection", "_send_probing_frames", "validate addresses that are not the active one"),
    PrivateName("QuicConnection", "_serialize_transport_parameters", "send max_udp_payload_size"),
    PrivateName("QuicConnection", "_spaces", "set up only once a packet arrived"),
    PrivateName("QuicConnection", "_spin_bit", "send it in packets of ours"),
    PrivateName("QuicConnection", "_state", "ended, or not begun"),
    PrivateName("QuicConnection", "_stream_is_discarded", "closed or never opened"),
    PrivateName("QuicConnection", "_streams", "flow control window that follows what was read"),
    PrivateName("QuicConnection", "_streams_queue", "stream data waiting"),
    PrivateName("QuicConnection", "_use_reserved_peer_cid", "follow a client to a new address"),
    PrivateName("QuicConnection", "_version", "build packets for it"),
    PrivateName(
        "QuicConnection", "_write_application", "frames of streams and of the connection, for packets of ours"
    ),
    PrivateName("QuicConnection", "_write_connection_limits", "window that does not double by itself"),
    PrivateName("QuicConnection", "_write_path_challenge_frame", "a challenge travels alone"),
    PrivateName("QuicConnection", "_write_stream_limits", "window that does not double by itself"),
    PrivateName("QuicPacketRecovery", "_cc", "its packet size"),
    PrivateName("QuicPacketRecovery", "_logger", "log as one package"),
    PrivateName("QuicPacketRecovery", "_on_packets_lost", "count losses"),
    PrivateName("QuicPacketRecovery", "_pacer", "its packet size"),
    PrivateName("QuicPacketRecovery", "_quic_logger", "our line-wise trace"),
    PrivateName("QuicPacketRecovery", "_rtt_smoothed", "statistics"),
    PrivateName("QuicPacketRecovery", "_send_probe", "a cycle to break at the end"),
    PrivateName("QuicPacketPacer", "_max_datagram_size", "its packet size"),
    PrivateName("QuicCongestionControl", "_max_datagram_size", "its packet size"),
    PrivateName("tls.Context", "_peer_certificate", "the fingerprint check"),
    PrivateName("tls.Context", "_receive_buffer", "bound handshake data kept in memory"),
    PrivateName("tls.Context", "_supported_groups", "choose the key exchange groups"),
    PrivateName("H3Connection", "_blocked_streams", "no dynamic table"),
    PrivateName("H3Connection", "_check_control_frame_type", "bound the frames kept until whole"),
    PrivateName("H3Connection", "_check_request_or_push_frame_type", "bound HEADERS, CONNECT carries DATA only"),
    PrivateName("H3Connection", "_decoder", "no dynamic table"),
    PrivateName("H3Connection", "_get_local_settings", "H3_DATAGRAM, MAX_FIELD_SECTION_SIZE"),
    PrivateName("H3Connection", "_handle_request_or_push_end", "malformed message: stream error"),
    PrivateName("H3Connection", "_handle_request_or_push_frame", "malformed message: stream error"),
    PrivateName("H3Connection", "_init_connection", "no dynamic table, no server push"),
    PrivateName("H3Connection", "_local_control_stream_id", "send GOAWAY"),
    PrivateName("H3Connection", "_max_push_id", "no server push"),
    PrivateName("H3Connection", "_max_table_capacity", "no dynamic table"),
    PrivateName("H3Connection", "_peer_control_stream_id", "read GOAWAY"),
    PrivateName("H3Connection", "_quic", "the connection beneath"),
    PrivateName("H3Connection", "_receive_stream_data_uni", "read GOAWAY, closing of QPACK streams"),
    PrivateName("H3Connection", "_stream", "size of the frame being received"),
    PrivateName("H3Connection", "_validate_settings", "no dynamic table in our encoder"),
)
