"""TLS as a protocol of the application layer: recognition, EVE, bypass."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, AppProtocol, BypassWish, DetectionPattern
from flowshunt_ids_tls.parser import FINISHED, TlsParser, TlsTransaction

_NAMES: Final = {
    0x0002: "SSLv2", 0x0300: "SSLv3", 0x0301: "TLS 1.0", 0x0302: "TLS 1.1", 0x0303: "TLS 1.2", 0x0304: "TLS 1.3",
}  # fmt: skip
_EVENTS: Final = frozenset(
    {
        "invalid_sslv2_header", "invalid_tls_header", "invalid_record_version", "invalid_record_type",
        "invalid_record_length", "invalid_handshake_message", "heartbeat_message", "invalid_heartbeat_message",
        "overflow_heartbeat_message", "dataleak_heartbeat_mismatch", "handshake_invalid_length",
        "multiple_sni_extensions", "invalid_sni_type", "invalid_sni_length", "too_many_records_in_packet",
        "invalid_certificate", "certificate_invalid_length", "certificate_invalid_version",
        "certificate_invalid_serial", "certificate_invalid_algorithmidentifier", "certificate_invalid_x509name",
        "certificate_invalid_date", "certificate_invalid_extensions", "certificate_invalid_der",
        "certificate_invalid_subject", "certificate_invalid_issuer", "certificate_invalid_validity",
        "error_message_encountered", "invalid_ssl_record",
    }
)  # fmt: skip


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def event(transaction: TlsTransaction) -> tuple[str, dict[str, Any]] | None:
    """The `tls` event of a connection; None before its handshake came to anything."""
    client, server = transaction.sides[TO_SERVER], transaction.sides[TO_CLIENT]
    if client.hello is None and server.hello is None:
        return None
    fields: dict[str, Any] = {}
    first = server.first
    if first is not None:
        fields.update(subject=first.subject, issuerdn=first.issuer, serial=first.serial, fingerprint=first.fingerprint)
    elif client.hello is not None and server.hello is not None and server.hello.session:
        fields["session_resumed"] = client.hello.session == server.hello.session and server.encrypted
        if not fields["session_resumed"]:
            del fields["session_resumed"]
    if client.hello is not None and client.hello.server_name is not None:
        fields["sni"] = client.hello.server_name.decode("utf-8", "replace")
    fields["version"] = _NAMES.get(transaction.version, f"0x{transaction.version:04x}")
    if first is not None:
        fields.update(notbefore=_date(first.not_before), notafter=_date(first.not_after))
    for name, side in (("ja3", client), ("ja3s", server)):
        if side.hello is not None:
            fields[name] = {"hash": side.hello.ja3_hash, "string": side.hello.ja3}
    for name, side in (("client_alpns", client), ("server_alpns", server)):
        if side.hello is not None and side.hello.protocols:
            fields[name] = [each.decode("utf-8", "replace") for each in side.hello.protocols]
    return "tls", fields


def encrypted(parser: TlsParser, settings: Mapping[str, Any]) -> str:
    """What `encryption-handling` says of flows whose handshake is over: "bypass" lets go of them."""
    return "tls encrypted" if parser.bypass and settings.get("encryption-handling") == "bypass" else ""


_VERSION_BYTES: Final = (b"\x03\x00", b"\x03\x01", b"\x03\x02", b"\x03\x03", b"\x03\x04")

TLS = AppProtocol(
    "tls",
    TlsParser,
    (FINISHED, FINISHED),
    aliases=("ssl",),
    patterns=tuple(
        DetectionPattern(kind + version, direction)
        for kind in (b"\x16", b"\x15")
        for version in _VERSION_BYTES
        for direction in (TO_SERVER, TO_CLIENT)
        if kind == b"\x16" or direction == TO_CLIENT
    ),
    events=_EVENTS,
    eve=event,
    eve_types=frozenset({"tls"}),
)
BYPASS = BypassWish("tls", encrypted)
