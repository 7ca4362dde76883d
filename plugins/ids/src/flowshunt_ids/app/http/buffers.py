"""The buffers and conditions on HTTP transactions that rules look at."""

from collections.abc import Callable
from typing import Any

from flowshunt_ids.app.contract import TO_SERVER, Buffer, ConditionKind
from flowshunt_ids.app.http.headers import Fields
from flowshunt_ids.app.http.transaction import BODY, HEADERS, LINE, HttpTransaction

_HTTP = ("http",)


def _method(transaction: HttpTransaction, _direction: int) -> bytes | None:
    return transaction.method


def _uri(transaction: HttpTransaction, _direction: int) -> bytes | None:
    return transaction.uri


def _raw_uri(transaction: HttpTransaction, _direction: int) -> bytes | None:
    return transaction.target


def _host(transaction: HttpTransaction, _direction: int) -> bytes | None:
    return transaction.host if transaction.progress[TO_SERVER] > HEADERS else None


def _raw_host(transaction: HttpTransaction, _direction: int) -> bytes | None:
    if transaction.progress[TO_SERVER] <= HEADERS:
        return None
    return transaction.authority or transaction.fields[TO_SERVER].get(b"host")


def _protocol(transaction: HttpTransaction, direction: int) -> bytes | None:
    return transaction.protocol if direction == TO_SERVER else transaction.version


def _request_line(transaction: HttpTransaction, _direction: int) -> bytes | None:
    return transaction.line


def _response_line(transaction: HttpTransaction, _direction: int) -> bytes | None:
    return transaction.status_line


def _status(transaction: HttpTransaction, _direction: int) -> bytes | None:
    return transaction.status


def _message(transaction: HttpTransaction, _direction: int) -> bytes | None:
    return transaction.message


def _known(transaction: HttpTransaction, direction: int) -> Fields | None:
    return transaction.fields[direction] if transaction.progress[direction] > HEADERS else None


def _field(name: bytes) -> Callable[[Any, int], bytes | None]:
    def get(transaction: HttpTransaction, direction: int) -> bytes | None:
        fields = _known(transaction, direction)
        return fields.get(name) if fields is not None else None

    return get


def _cookie(transaction: HttpTransaction, direction: int) -> bytes | None:
    fields = _known(transaction, direction)
    if fields is None:
        return None
    return fields.get(b"cookie" if direction == TO_SERVER else b"set-cookie")


def _built(name: str, build: Callable[[HttpTransaction, int, Fields], bytes | None]) -> Callable[[Any, int], Any]:
    """A buffer that is put together once, for all the rules that look at it."""

    def get(transaction: HttpTransaction, direction: int) -> bytes | None:
        fields = _known(transaction, direction)
        if fields is None:
            return None
        key = name, direction, len(fields.raw)
        if key not in transaction.built:
            transaction.built[key] = build(transaction, direction, fields)
        return transaction.built[key]

    return get


def _header(_transaction: HttpTransaction, direction: int, fields: Fields) -> bytes | None:
    cookie = b"cookie" if direction == TO_SERVER else b"set-cookie"
    text = b"".join(
        name + b": " + value + b"\r\n"
        for name, value in zip(fields.names, fields.values, strict=True)
        if name.lower() != cookie
    )
    return text or None


def _raw_header(transaction: HttpTransaction, direction: int) -> bytes | None:
    fields = _known(transaction, direction)
    return (fields.raw or None) if fields is not None else None


def _names(_transaction: HttpTransaction, _direction: int, fields: Fields) -> bytes | None:
    if not fields.names:
        return None
    return b"\r\n" + b"\r\n".join(fields.names) + b"\r\n\r\n"


def _start(transaction: HttpTransaction, direction: int, fields: Fields) -> bytes | None:
    line = transaction.line if direction == TO_SERVER else transaction.status_line
    if line is None:
        return None
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in zip(fields.names, fields.values, strict=True))
    return line + b"\r\n" + lines + (b"\r\n" if lines else b"")


def _each_field(transaction: HttpTransaction, direction: int) -> list[bytes] | None:
    fields = _known(transaction, direction)
    if fields is None or not fields.names:
        return None
    return [name + b": " + value for name, value in zip(fields.names, fields.values, strict=True)]


def _body(transaction: HttpTransaction, direction: int) -> bytes | None:
    body = transaction.bodies[direction]
    return body.window(transaction.progress[direction] > BODY) if body is not None else None


_TO_SERVER = (HEADERS, None)
_TO_CLIENT = (None, HEADERS)
_BOTH = (HEADERS, HEADERS)

BUFFERS = (
    Buffer("http.method", _HTTP, _method, (LINE, None), modifier="http_method", pcre_flag="M"),
    Buffer("http.uri", _HTTP, _uri, (LINE, None), modifier="http_uri", pcre_flag="U"),
    Buffer("http.uri.raw", _HTTP, _raw_uri, (LINE, None), modifier="http_raw_uri", pcre_flag="I"),
    Buffer("http.request_line", _HTTP, _request_line, (LINE, None), aliases=("http_request_line",)),
    Buffer("http.host", _HTTP, _host, _TO_SERVER, modifier="http_host", pcre_flag="W"),
    Buffer("http.host.raw", _HTTP, _raw_host, _TO_SERVER, modifier="http_raw_host", pcre_flag="Z"),
    Buffer("http.user_agent", _HTTP, _field(b"user-agent"), _TO_SERVER, modifier="http_user_agent", pcre_flag="V"),
    Buffer("http.referer", _HTTP, _field(b"referer"), _TO_SERVER, aliases=("http_referer",)),
    Buffer("http.accept", _HTTP, _field(b"accept"), _TO_SERVER, aliases=("http_accept",)),
    Buffer("http.accept_enc", _HTTP, _field(b"accept-encoding"), _TO_SERVER, aliases=("http_accept_enc",)),
    Buffer("http.accept_lang", _HTTP, _field(b"accept-language"), _TO_SERVER, aliases=("http_accept_lang",)),
    Buffer("http.connection", _HTTP, _field(b"connection"), _BOTH, aliases=("http_connection",)),
    Buffer("http.content_len", _HTTP, _field(b"content-length"), _BOTH, aliases=("http_content_len",)),
    Buffer("http.content_type", _HTTP, _field(b"content-type"), _BOTH, aliases=("http_content_type",)),
    Buffer("http.server", _HTTP, _field(b"server"), _TO_CLIENT),
    Buffer("http.location", _HTTP, _field(b"location"), _TO_CLIENT),
    Buffer("http.cookie", _HTTP, _cookie, _BOTH, modifier="http_cookie", pcre_flag="C"),
    Buffer("http.protocol", _HTTP, _protocol, (LINE, LINE), aliases=("http_protocol",)),
    Buffer("http.header", _HTTP, _built("header", _header), _BOTH, modifier="http_header", pcre_flag="H"),
    Buffer("http.header.raw", _HTTP, _raw_header, _BOTH, modifier="http_raw_header", pcre_flag="D"),
    Buffer("http.header_names", _HTTP, _built("names", _names), _BOTH, aliases=("http_header_names",)),
    Buffer("http.start", _HTTP, _built("start", _start), _BOTH, aliases=("http_start",)),
    Buffer("http.request_header", _HTTP, _each_field, _TO_SERVER, multiple=True),
    Buffer("http.response_header", _HTTP, _each_field, _TO_CLIENT, multiple=True),
    Buffer("http.response_line", _HTTP, _response_line, (None, LINE), aliases=("http_response_line",)),
    Buffer("http.stat_code", _HTTP, _status, (None, LINE), modifier="http_stat_code", pcre_flag="S"),
    Buffer("http.stat_msg", _HTTP, _message, (None, LINE), modifier="http_stat_msg", pcre_flag="Y"),
    Buffer("http.request_body", _HTTP, _body, (BODY, None), modifier="http_client_body", pcre_flag="P", streaming=True),
    Buffer(
        "http.response_body", _HTTP, _body, (None, BODY), modifier="http_server_body", pcre_flag="Q", streaming=True
    ),
)


def _uri_length(transaction: HttpTransaction, _direction: int, value: tuple[int, int, bool, bool]) -> bool | None:
    low, high, negated, raw = value
    text = transaction.target if raw else transaction.uri
    if text is None:
        return None
    return (low <= len(text) <= high) != negated


CONDITIONS = (ConditionKind("urilen", _HTTP, (LINE, None), _uri_length),)
