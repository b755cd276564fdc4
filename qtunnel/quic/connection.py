"""One QUIC connection: what is sent when, how large, and why it ended. HTTP/3 is above, in h3.py.

    bytes in    receive_datagram        any bytes; never raises
    bytes out   datagrams_to_send       handshake and first flights in 1200 bytes, larger once confirmed
    time        get_timer, handle_timer aioquic's timers, the handshake's limit and the keep-alive
    the end     closed                  set once, with the cause

Packets of the tunnel wait in a bounded queue (datagram_queue.py) that is also aioquic's.
"""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Any, Final

from aioquic.h3.connection import ErrorCode
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicErrorCode, QuicFrameType
from aioquic.tls import AlertDescription, CipherSuite

from qtunnel.drops import DropCounts, DropReason
from qtunnel.quic._aioquic_plane import PlaneCore
from qtunnel.quic.certificate import (
    check_authorities,
    fingerprint_matches,
    fingerprint_of,
    load_certificate_chain,
    load_private_key,
    system_authorities,
)
from qtunnel.quic.datagram_queue import DatagramQueue
from qtunnel.quic.events import CloseCause, ConnectionClosed
from qtunnel.quic.long_header import QUIC_V1
from qtunnel.quic.qlog import LineTracer, SecretsFile
from qtunnel.quic.sending_limit import SendingLimit
from qtunnel.quic.settings import MIN_UDP_PAYLOAD, ConnectionSettings, EndpointSettings, TransportSettings
from qtunnel.quic.stateless_reset import MIN_RESET_SIZE, TOKEN_SIZE
from qtunnel.quic.stats import ConnectionStats
from qtunnel.quic.transmits import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioquic.quic.packet import QuicTransportParameters

    from qtunnel.burst import Address
    from qtunnel.drops import DropCounts
    from qtunnel.packet_run import Packets
    from qtunnel.pmtud.discovery import PathMtuDiscovery
    from qtunnel.recovery.size_counts import SizeCounts

__all__ = ["CID_SIZE", "Connection", "client_configuration", "error_name", "server_configuration"]

logger = logging.getLogger(__name__)

CID_SIZE: Final = 4
"""Bytes of the connection ids we issue."""
AEAD_TAG_SIZE: Final = 16
PACKET_NUMBER_SIZE: Final = 2
MAX_REASON: Final = 160
"""Bytes of a reason phrase: a closing datagram repeats it per encryption level and must stay below 1200."""
MAX_UNACKNOWLEDGED_ACKS: Final = 64
"""Packets with nothing but ACKs after which a PING is added: aioquic keeps a record of each until the peer
acknowledges something, and in a one-way flow it never has a reason to (RFC 9000 §13.2.4)."""
STREAM_WINDOW: Final = 1024 * 1024
DATA_WINDOW: Final = 2 * 1024 * 1024
"""Flow control windows, bytes: also the most a peer can make us hold for one stream and for all."""
IDLE_TIMEOUT_REASON: Final = "Idle timeout"
"""How aioquic words it; the code it gives, INTERNAL_ERROR, says nothing."""
CERTIFICATE_ALERTS: Final = frozenset(
    QuicErrorCode.CRYPTO_ERROR + alert
    for alert in (
        AlertDescription.bad_certificate,
        AlertDescription.unsupported_certificate,
        AlertDescription.certificate_revoked,
        AlertDescription.certificate_expired,
        AlertDescription.certificate_unknown,
        AlertDescription.unknown_ca,
    )
)


def client_configuration(settings: ConnectionSettings) -> QuicConfiguration:
    """Return aioquic's configuration of a client.

    Raises: ConfigError if the settings cannot be used.
    """
    configuration = _common_configuration(settings, is_client=True)
    configuration.server_name = settings.server_name or None
    if settings.fingerprint is not None or not settings.verify:
        configuration.verify_mode = ssl.CERT_NONE  # the fingerprint is checked by Connection
    elif settings.cafile is None and settings.cadata is None:
        configuration.cafile, configuration.capath = system_authorities()
    else:
        check_authorities(settings.cafile, settings.cadata)
        configuration.cafile = settings.cafile
        configuration.cadata = settings.cadata
    return configuration


def server_configuration(settings: EndpointSettings) -> QuicConfiguration:
    """Return aioquic's configuration of a server; shared by its connections.

    Raises: ConfigError if certificate or key cannot be used.
    """
    configuration = _common_configuration(settings, is_client=False)
    chain = load_certificate_chain(settings.certificate)
    configuration.certificate = chain[0]
    configuration.certificate_chain = chain[1:]
    configuration.private_key = load_private_key(settings.private_key)
    return configuration


def _common_configuration(settings: TransportSettings, *, is_client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        alpn_protocols=list(settings.alpn),
        cipher_suites=[
            CipherSuite.AES_128_GCM_SHA256,
            CipherSuite.AES_256_GCM_SHA384,
            CipherSuite.CHACHA20_POLY1305_SHA256,
        ],
        # For the handshake, and for all of a connection without packet plane: aioquic knows two.
        congestion_control_algorithm="reno" if settings.congestion_control == "reno" else "cubic",
        connection_id_length=CID_SIZE,
        idle_timeout=settings.idle_timeout,
        is_client=is_client,
        max_data=DATA_WINDOW,
        max_datagram_frame_size=settings.max_datagram_frame_size,
        max_datagram_size=MIN_UDP_PAYLOAD,
        max_stream_data=STREAM_WINDOW,
        quic_logger=LineTracer(settings.qlog) if settings.qlog is not None else None,
        # aioquic asks for a TextIO and calls write and flush.
        secrets_log_file=_as_text_io(settings),
        supported_versions=[QUIC_V1],
    )


def _as_text_io(settings: TransportSettings) -> Any:
    return SecretsFile(settings.secrets) if settings.secrets is not None else None


class Connection(PlaneCore):
    """A QUIC connection under qtunnel's rules; the five verbs of aioquic, and what h3.py needs besides.

    configuration: of client_configuration or server_configuration. started_at: seconds, for the handshake's limit.
    """

    def __init__(
        self,
        settings: TransportSettings,
        configuration: QuicConfiguration,
        *,
        started_at: float,
        new_cid: Callable[[], bytes],
        reset_token: Callable[[bytes], bytes],
        original_cid: bytes | None = None,
        retry_cid: bytes | None = None,
    ) -> None:
        self._settings = settings
        super().__init__(
            configuration=configuration,
            new_cid=new_cid,
            reset_token=reset_token,
            random_bytes=settings.random_bytes,
            original_cid=original_cid,
            retry_cid=retry_cid,
        )
        self.local_max_path_id = settings.initial_max_path_id
        self.closed: ConnectionClosed | None = None
        self.internal_errors = 0
        self.queue = DatagramQueue(max_packets=settings.queue_packets, max_delay=settings.queue_delay)
        self.use_datagram_queue(self.queue.frames)
        self._fingerprint = settings.fingerprint if isinstance(settings, ConnectionSettings) else None
        self._told_udp_payload = settings.max_udp_payload
        self._peer_udp_payload = 65527
        self._handshake_deadline: float | None = started_at + settings.handshake_timeout
        self._keep_alive_at: float | None = None
        self._is_settling = True
        self._streams_first = True
        self._largest_accepted = 0
        self._bytes_sent = 0
        self._bytes_received = 0
        self._datagrams_sent = 0
        self._datagrams_received = 0

    # -- bytes in

    def receive_datagram(self, data: bytes, addr: Address, now: float) -> None:
        """Read one UDP payload, whatever it holds."""
        self._bytes_received += len(data)
        self._datagrams_received += 1
        if self.is_ending or self.is_foreign_negotiation(data):
            return
        self.set_log_time(now)
        opened = self.packets_opened
        try:
            super().receive_datagram(data, addr, now)
        except Exception:
            # What a peer can provoke in aioquic is not known in full, and ends this connection only.
            self._fail_internally()
        if self.packets_opened > opened:
            if self._settings.keep_alive is not None:
                self._keep_alive_at = now + self._settings.keep_alive
            if self._is_settling:
                self._follow_handshake()
        elif self._is_stateless_reset(data):
            self.terminate()
            self._report(CloseCause.STATELESS_RESET, 0, False, "the peer no longer knows the connection")
        if self.closed_by_peer:
            self._report_termination(CloseCause.PEER)

    def receive_datagrams(self, datagrams: Sequence[bytes], addr: Address, now: float, ecn: int = 0) -> None:
        """Read UDP payloads that came in together from one address; ecn: their mark (RFC 3168)."""
        del ecn
        for data in datagrams:
            self.receive_datagram(data, addr, now)

    size_changed = False
    """Whether packets have had another size since this was set back; only with packets of our own."""

    def take_returned(self) -> list[tuple[bytes, Packets]]:
        """Return packets that were queued and no longer fit the path, as (prefix, packets)."""
        return []

    def on_stall(self, duration: float, now: float) -> None:
        """Take note that this process slept so long. For subclasses."""

    def on_refused(self, size: int, now: float) -> None:
        """Take note that the kernel refused a datagram of size bytes. For subclasses."""

    def on_packet_too_big(self, mtu: int, quoted: bytes, now: float) -> None:
        """Take an ICMP message about a datagram that begins with quoted. For subclasses."""

    @property
    def path_mtu(self) -> PathMtuDiscovery | None:
        """What is known of the path's MTU; None: it was told, or nothing is known yet."""
        return None

    @property
    def size_counts(self) -> SizeCounts | None:
        """Packets by size; None: they are not counted."""
        return None

    def take_datagrams(self) -> list[Packets]:
        """Return payloads of DATAGRAM frames that came past aioquic, in groups; here all come as its events."""
        return []

    def _follow_handshake(self) -> None:
        """Act on the handshake's progress."""
        if self.handshake_complete and self._handshake_deadline is not None:
            self._handshake_deadline = None
            self._check_fingerprint()
        if self.handshake_confirmed:
            self._is_settling = False
            self.datagram_size = self._allowed_udp_payload()
            self.on_handshake_confirmed()

    def on_handshake_confirmed(self) -> None:
        """Do what can be done from now on; for subclasses."""

    def _check_fingerprint(self) -> None:
        """Close if the server is another one; nothing of ours but the handshake has left at this point."""
        if self._fingerprint is None:
            return
        der = self.peer_certificate
        if der is not None and fingerprint_matches(der, self._fingerprint):
            return
        found = "none" if der is None else fingerprint_of(der)
        self._report(
            CloseCause.NOT_VERIFIED,
            QuicErrorCode.CRYPTO_ERROR + AlertDescription.bad_certificate,
            False,
            f"the server's certificate has fingerprint {found}, expected {self._fingerprint.lower()}",
        )
        super().close(
            QuicErrorCode.CRYPTO_ERROR + AlertDescription.bad_certificate,
            QuicFrameType.CRYPTO,
            "certificate not trusted",
        )

    def _is_stateless_reset(self, data: bytes) -> bool:
        return len(data) >= MIN_RESET_SIZE and not data[0] & 0x80 and self.is_reset_token(data[-TOKEN_SIZE:])

    # -- bytes out

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Any]]:
        """Return (UDP payload, address) pairs in order; call get_timer() afterwards.

        When both stream data and packets wait, they take turns at going first, so that neither starves the other.
        """
        self.set_log_time(now)
        self.challenge_written = False
        queue = self.queue
        queue.drop_old(now)
        if queue.frames:
            self._drop_what_no_longer_fits()
        if self.only_acks_are_unacknowledged(MAX_UNACKNOWLEDGED_ACKS):
            self.send_ping(0)
        try:
            sent: list[tuple[bytes, Any]] = []
            if queue.frames and self.stream_data_is_waiting():
                self._streams_first = not self._streams_first
                if self._streams_first:
                    sent = self._send_without_queue(now)
            sent += super().datagrams_to_send(now)
        except Exception:
            # As in receive_datagram; what cannot even be closed in good order ends in silence.
            self._fail_internally()
            self.terminate()
            sent = []
        queue.settle()
        for data, _ in sent:
            self._bytes_sent += len(data)
        self._datagrams_sent += len(sent)
        return sent

    def batches_to_send(self, now: float) -> list[Batch]:
        """Return what datagrams_to_send does, as batches for one sendmsg each."""
        return [Batch(data, addr) for data, addr in self.datagrams_to_send(now)]

    @property
    def joins_datagrams(self) -> bool:
        """Whether what batches_to_send returned may be joined to segmented sends.

        Not with a PATH_CHALLENGE, and nothing of the handshake, which has to come about where these get lost.
        """
        return self.handshake_confirmed and not self.challenge_written

    @property
    def has_given_up_gso(self) -> bool:
        """Whether the peer lost what was sent segmented, so that nothing is any more."""
        return False

    @property
    def has_room_for_read(self) -> bool:
        """Whether the queue takes all that one read of the TUN gives."""
        return self.queue.has_room_for_read

    def count_drops_in(self, drops: DropCounts) -> None:
        """Count dropped packets there."""
        self.queue.drops = drops

    def queue_packets(self, prefix: bytes, packets: Packets, now: float) -> DropCounts:
        """Queue a burst of DATAGRAM frames, each prefix + packet; return what was dropped of it at once."""
        self._drop_what_no_longer_fits()
        return self.queue.push(prefix, packets, max_payload=self._largest_accepted, now=now)

    def _drop_what_no_longer_fits(self) -> None:
        """Drop packets accepted when more fitted: the path shrank, or the peer's connection id grew."""
        largest = self.max_datagram_payload
        if largest < self._largest_accepted:
            self.queue.drop_larger_than(largest)
        self._largest_accepted = largest

    def _send_without_queue(self, now: float) -> list[tuple[bytes, Any]]:
        held = self.queue.frames
        self.use_datagram_queue(type(held)())
        try:
            return super().datagrams_to_send(now)
        finally:
            self.use_datagram_queue(held)

    @property
    def max_datagram_payload(self) -> int:
        """Bytes of the largest DATAGRAM frame payload that can be sent now; 0 before the peer allows any.

        Bounded by the path, max_udp_payload_size and the peer's max_datagram_frame_size (RFC 9221 §5), which
        counts type, length and data.
        """
        packet_overhead = 1 + self.peer_cid_size + PACKET_NUMBER_SIZE + AEAD_TAG_SIZE
        return _largest_payload(min(self.datagram_size - packet_overhead, self.peer_max_datagram_frame_size))

    def set_max_udp_payload(self, size: int) -> None:
        """Take another size of the path, bytes; packets in the queue that no longer fit are dropped, counted."""
        self._told_udp_payload = max(MIN_UDP_PAYLOAD, size)
        if self.handshake_confirmed:
            self.datagram_size = self._allowed_udp_payload()
            self._drop_what_no_longer_fits()

    def _allowed_udp_payload(self) -> int:
        return min(self._told_udp_payload, self._peer_udp_payload)

    # -- time

    def get_timer(self) -> float | None:
        """Return when handle_timer is due, seconds; None: never."""
        times = [super().get_timer()]
        if not self.is_ending:
            times += [self._handshake_deadline, self._keep_alive_at]
        return min((at for at in times if at is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Do what is due; call datagrams_to_send and get_timer afterwards."""
        self.set_log_time(now)
        due = super().get_timer()
        if self._handshake_deadline is not None and now >= self._handshake_deadline and not self.is_ending:
            self._give_up_handshake()
            return
        if due is not None and now >= due:
            self._handle_core_timer(now)
        if self._keep_alive_at is not None and now >= self._keep_alive_at and not self.is_ending:
            self._keep_alive_at = now + (self._settings.keep_alive or 0.0)
            self.send_ping(0)

    def _give_up_handshake(self) -> None:
        self._handshake_deadline = None
        limit = self._settings.handshake_timeout
        self._report(CloseCause.HANDSHAKE_TIMEOUT, 0, False, f"no handshake within {limit:g} seconds")
        super().close(QuicErrorCode.NO_ERROR, QuicFrameType.PADDING, "handshake took too long")

    def _handle_core_timer(self, now: float) -> None:
        was_ending = self.is_ending
        try:
            super().handle_timer(now)
        except Exception:  # as in receive_datagram
            self._fail_internally()
        if self.is_terminated and not was_ending:
            is_idle = self.termination[2] == IDLE_TIMEOUT_REASON
            self._report_termination(CloseCause.IDLE_TIMEOUT if is_idle else CloseCause.LOCAL)

    # -- the end

    def close(
        self,
        error_code: int = QuicErrorCode.NO_ERROR,
        frame_type: int | None = None,
        reason_phrase: str = "",
    ) -> None:
        """Close with CONNECTION_CLOSE: an HTTP/3 code if frame_type is None, else QUIC's.

        Also called by aioquic when the peer broke a rule. The reason is cut to what fits the datagram.
        """
        if self.closed is not None or self.is_ending:
            return
        reason = reason_phrase.encode("utf8", "replace")[:MAX_REASON].decode("utf8", "ignore")
        super().close(error_code, frame_type, reason)
        self._report(self._cause_of(error_code, frame_type), error_code, frame_type is None, reason)

    def _cause_of(self, error_code: int, frame_type: int | None) -> CloseCause:
        if frame_type is None or not 0x100 <= error_code <= 0x1FF:
            return CloseCause.LOCAL
        if self.configuration.is_client and error_code in CERTIFICATE_ALERTS:
            return CloseCause.NOT_VERIFIED
        return CloseCause.TLS_ALERT

    def _report_termination(self, cause: CloseCause) -> None:
        """Report an end that aioquic found."""
        error_code, is_application, reason = self.termination
        if cause is CloseCause.PEER and not is_application and 0x100 <= error_code <= 0x1FF:
            cause = CloseCause.TLS_ALERT
        self._report(cause, error_code, is_application, reason)

    def _report(self, cause: CloseCause, error_code: int, is_application: bool, reason: str) -> None:
        if self.closed is None:
            text = reason or error_name(error_code, is_application=is_application)
            if cause is not CloseCause.PEER:
                text = _within_a_sentence(text)
            self.closed = ConnectionClosed(cause, int(error_code), is_application, text)
            self.on_closed()

    def on_closed(self) -> None:
        """Drop what waits to be sent."""
        self.queue.clear(DropReason.NO_SESSION)

    def _fail_internally(self) -> None:
        self.internal_errors += 1
        logger.debug("connection closed after an internal error", exc_info=True)
        self.close(QuicErrorCode.INTERNAL_ERROR, QuicFrameType.PADDING, "internal error")

    # -- numbers

    def stats(self) -> ConnectionStats:
        """Return a snapshot of the numbers."""
        return ConnectionStats(
            bytes_sent=self._bytes_sent,
            bytes_received=self._bytes_received,
            datagrams_sent=self._datagrams_sent,
            datagrams_received=self._datagrams_received,
            lost=self.packets_lost,
            smoothed_rtt=self.smoothed_rtt,
            congestion_window=self.congestion_window,
            bytes_in_flight=self.bytes_in_flight,
            max_udp_payload=self.datagram_size,
            queued=len(self.queue.frames),
        )

    def sending_limit(self, now: float) -> SendingLimit:
        """Return what keeps inner packets from leaving; nobody knows before the packet plane has taken over."""
        del now
        return SendingLimit.NOTHING

    # -- for QuicCore

    def on_transport_parameters(self, parameters: QuicTransportParameters) -> None:
        """Note how large packets the peer takes (RFC 9000 §18.2)."""
        if parameters.max_udp_payload_size is not None:
            self._peer_udp_payload = parameters.max_udp_payload_size

    def local_max_udp_payload(self) -> int:
        """Return what we advertise: nothing larger gets through the path anyway."""
        return self._settings.max_udp_payload


def error_name(error_code: int, *, is_application: bool) -> str:
    """Return an error code's name in HTTP/3 (RFC 9114 §8.1) or QUIC (RFC 9000 §20.1), or its number."""
    if not is_application and 0x100 <= error_code <= 0x1FF:
        return f"TLS alert {error_code - 0x100}"
    try:
        return (ErrorCode if is_application else QuicErrorCode)(error_code).name
    except ValueError:
        return f"error {error_code:#x}"


def _within_a_sentence(text: str) -> str:
    """Return a text of aioquic, which begins with a capital, as it reads after a colon; names stay as they are."""
    return text[:1].lower() + text[1:] if text.partition(" ")[0].istitle() else text


def _largest_payload(frame_size: int) -> int:
    """Return the data bytes of a DATAGRAM frame with a length field (0x31) in that many bytes."""
    if frame_size <= 65:
        return max(0, frame_size - 2)
    if frame_size <= 16386:
        return frame_size - 3
    return max(16383, frame_size - 5)
