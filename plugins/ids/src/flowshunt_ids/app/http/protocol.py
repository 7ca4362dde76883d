"""HTTP/1.x as a protocol of the application layer."""

from collections.abc import Mapping
from typing import Any

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, AppProtocol, Context, DetectionPattern
from flowshunt_ids.app.http.body import BodyLimits
from flowshunt_ids.app.http.events import EVENTS
from flowshunt_ids.app.http.parser import HttpParser
from flowshunt_ids.app.http.reader import HttpSettings
from flowshunt_ids.app.http.transaction import COMPLETE, HttpTransaction
from flowshunt_ids.app.http.uri import MINIMAL, PERSONALITIES
from flowshunt_ids.app.sizes import size_of

_METHODS = (
    b"GET PUT POST HEAD TRACE OPTIONS CONNECT DELETE PATCH PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK CHECKOUT "
    b"UNCHECKOUT CHECKIN UPDATE LABEL REPORT MKWORKSPACE MKACTIVITY MERGE INVALID VERSION-CONTROL BASELINE-CONTROL"
).split()


def read_settings(tree: Mapping[str, Any]) -> HttpSettings:
    """The settings of `app-layer.protocols.http`: its `libhtp.default-config`."""
    config = tree.get("libhtp")
    config = config.get("default-config") if isinstance(config, Mapping) else None
    if not isinstance(config, Mapping):
        return HttpSettings()

    def limits(kind: str) -> BodyLimits:
        default = BodyLimits()
        return BodyLimits(
            size_of(config.get(f"{kind}-body-limit"), default.keep),
            size_of(config.get(f"{kind}-body-minimal-inspect-size"), default.least),
            size_of(config.get(f"{kind}-body-inspect-window"), default.window),
            size_of(config.get("compression-bomb-limit"), default.bomb),
            size_of(config.get("lzma-memlimit"), 1 << 20) if config.get("lzma-enabled") in (True, "yes") else 0,
        )

    personality = str(config.get("personality", "")).lower()
    return HttpSettings(limits("request"), limits("response"), PERSONALITIES.get(personality, MINIMAL))


def _open(context: Context) -> HttpParser:
    return HttpParser(context, read_settings(context.settings))


def _text(value: bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if value is not None else None


def event(transaction: HttpTransaction) -> tuple[str, dict[str, Any]] | None:
    """The `http` event of a transaction."""
    request, response = transaction.fields
    length = transaction.bodies[TO_CLIENT]
    kind = response.get(b"content-type")
    fields: dict[str, Any] = {
        "hostname": _text(transaction.host),
        "http_port": int(transaction.port) if transaction.port and transaction.port.isdigit() else None,
        "url": _text(transaction.target),
        "http_user_agent": _text(request.get(b"user-agent")),
        "http_content_type": _text(kind.partition(b";")[0].strip()) if kind is not None else None,
        "http_refer": _text(request.get(b"referer")),
        "http_method": _text(transaction.method),
        "protocol": _text(transaction.protocol),
        "status": transaction.status_number or None,
        "redirect": _text(response.get(b"location")) if 300 <= transaction.status_number <= 303 else None,
        "length": length.sent if length is not None else 0,
    }
    return "http", {name: value for name, value in fields.items() if value is not None}


HTTP = AppProtocol(
    "http",
    _open,
    (COMPLETE, COMPLETE),
    aliases=("http1",),
    patterns=(
        *(DetectionPattern(name + blank, TO_SERVER, nocase=True) for name in _METHODS for blank in (b" ", b"\t")),
        *(DetectionPattern(b"HTTP/" + version, TO_CLIENT, nocase=True) for version in (b"0.9", b"1.0", b"1.1")),
    ),
    events=EVENTS,
    eve=event,
    eve_types=frozenset({"http", "fileinfo"}),
)
