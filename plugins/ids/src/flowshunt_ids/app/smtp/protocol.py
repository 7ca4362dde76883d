"""SMTP as a protocol of the application layer: recognition, settings, events, EVE."""

from collections.abc import Mapping
from typing import Any

from flowshunt_ids.app.contract import AppProtocol, Context, DetectionPattern
from flowshunt_ids.app.files import FileLimits
from flowshunt_ids.app.mime.decoder import MimeSettings
from flowshunt_ids.app.sizes import size_of
from flowshunt_ids.app.smtp.parser import SmtpParser, SmtpSettings
from flowshunt_ids.app.smtp.transaction import COMPLETE, event, further

EVENTS = frozenset(
    {
        "bdat_chunk_len_exceeded",
        "data_command_rejected",
        "duplicate_fields",
        "failed_protocol_change",
        "invalid_pipelined_sequence",
        "invalid_reply",
        "max_command_line_len_exceeded",
        "max_reply_line_len_exceeded",
        "mime_invalid_base64",
        "mime_invalid_qp",
        "mime_long_boundary",
        "mime_long_enc_line",
        "mime_long_filename",
        "mime_long_header_name",
        "mime_long_header_value",
        "mime_long_line",
        "mime_malformed_msg",
        "mime_parse_failed",
        "no_server_welcome_message",
        "tls_rejected",
        "truncated_line",
        "unable_to_match_reply_with_request",
        "unparsable_content",
    }
)


def _flag(tree: Mapping[str, Any], name: str, default: bool) -> bool:
    value = tree.get(name, default)
    return value if isinstance(value, bool) else str(value).strip().lower() in ("yes", "true", "on", "1")


def read_settings(tree: Mapping[str, Any]) -> SmtpSettings:
    """From `app-layer.protocols.smtp`; what is not there or makes no sense is as Suricata has it."""
    mime = tree.get("mime")
    mime = mime if isinstance(mime, Mapping) else {}
    inspected = tree.get("inspected-tracker")
    inspected = inspected if isinstance(inspected, Mapping) else {}
    schemes = mime.get("extract-urls-schemes")
    settings = MimeSettings(
        _flag(mime, "decode-base64", True),
        _flag(mime, "decode-quoted-printable", True),
        _flag(mime, "extract-urls", True),
        tuple(str(each) for each in schemes) if isinstance(schemes, list) else ("http",),
        _flag(mime, "log-url-scheme", False),
        _flag(mime, "body-md5", False),
        size_of(mime.get("header-value-depth"), 2000) or 2000,
    )
    raw = _flag(tree, "raw-extraction", False)
    decode = _flag(mime, "decode-mime", True) and not raw
    keep = size_of(inspected.get("content-limit"), 100_000) or 100_000
    return SmtpSettings(settings if decode else None, raw, FileLimits(keep=min(keep, 1 << 20)))


def _open(context: Context) -> SmtpParser:
    return SmtpParser(context, read_settings(context.settings))


SMTP = AppProtocol(
    "smtp",
    _open,
    (COMPLETE, COMPLETE),
    patterns=tuple(DetectionPattern(word, nocase=True) for word in (b"EHLO", b"HELO", b"QUIT")),
    events=EVENTS,
    eve=event,
    eve_types=frozenset({"smtp", "fileinfo"}),
    eve_further=further,
)
