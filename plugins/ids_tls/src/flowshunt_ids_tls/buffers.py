"""The buffers and conditions on TLS connections, and the keywords that set them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from flowshunt_ids.app.contract import Buffer, ConditionKind
from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, unquoted
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Condition
from flowshunt_ids_tls.certificate import Certificate
from flowshunt_ids_tls.parser import CERTIFICATES, HELLO, TlsTransaction

_TLS: Final = ("tls",)
_CLIENT: Final = (HELLO, None)
_SERVER: Final = (None, HELLO)
_CERTIFICATE: Final = (CERTIFICATES, CERTIFICATES)
_VERSIONS: Final = {
    "sslv2": 0x0002, "sslv3": 0x0300, "tls1.0": 0x0301, "tls1.1": 0x0302, "tls1.2": 0x0303, "tls1.3": 0x0304,
}  # fmt: skip
_STATES: Final = ("client_hello", "server_hello", "client_keyx", "server_keyx", "unknown")
_DATE: Final = re.compile(r"\d{4}(-\d{2}(-\d{2}([ T]\d{2}(:\d{2}(:\d{2})?)?)?)?)?")
_PERIOD: Final = re.compile(r"\s*(?:(<|>)?\s*([-:TW0-9 ]+?)|([-:TW0-9 ]+?)\s*<>\s*([-:TW0-9 ]+?))\s*")


def _hello(get: Callable[[Any], bytes | None]) -> Callable[[TlsTransaction, int], bytes | None]:
    def found(transaction: TlsTransaction, direction: int) -> bytes | None:
        hello = transaction.sides[direction].hello
        return get(hello) if hello is not None else None

    return found


def _certificate(get: Callable[[Certificate], str]) -> Callable[[TlsTransaction, int], bytes | None]:
    def found(transaction: TlsTransaction, direction: int) -> bytes | None:
        first = transaction.sides[direction].first
        return get(first).encode() if first is not None else None

    return found


def _certificates(transaction: TlsTransaction, direction: int) -> list[bytes] | None:
    return list(transaction.sides[direction].certificates) or None


def _protocols(transaction: TlsTransaction, direction: int) -> list[bytes] | None:
    hello = transaction.sides[direction].hello
    return list(hello.protocols) or None if hello is not None else None


_RANDOM = _hello(lambda hello: hello.random)

BUFFERS: Final = (
    Buffer("tls.sni", _TLS, _hello(lambda hello: hello.server_name), _CLIENT, aliases=("tls_sni",)),
    Buffer("tls.cert_subject", _TLS, _certificate(lambda c: c.subject), _CERTIFICATE, aliases=("tls_cert_subject",)),
    Buffer("tls.cert_issuer", _TLS, _certificate(lambda c: c.issuer), _CERTIFICATE, aliases=("tls_cert_issuer",)),
    Buffer("tls.cert_serial", _TLS, _certificate(lambda c: c.serial), _CERTIFICATE, aliases=("tls_cert_serial",)),
    Buffer(
        "tls.cert_fingerprint", _TLS, _certificate(lambda c: c.fingerprint), _CERTIFICATE,
        aliases=("tls_cert_fingerprint",),
    ),
    Buffer("tls.certs", _TLS, _certificates, _CERTIFICATE, multiple=True, chained=False),
    Buffer("tls.alpn", _TLS, _protocols, (HELLO, HELLO), multiple=True, chained=False),
    Buffer("tls.random", _TLS, _RANDOM, (HELLO, HELLO)),
    Buffer("tls.random_time", _TLS, _hello(lambda hello: hello.random[:4]), (HELLO, HELLO)),
    Buffer("tls.random_bytes", _TLS, _hello(lambda hello: hello.random[4:]), (HELLO, HELLO)),
    Buffer("ja3.hash", _TLS, _hello(lambda hello: hello.ja3_hash.encode()), _CLIENT, aliases=("ja3_hash",)),
    Buffer("ja3.string", _TLS, _hello(lambda hello: hello.ja3.encode()), _CLIENT, aliases=("ja3_string",)),
    Buffer("ja3s.hash", _TLS, _hello(lambda hello: hello.ja3_hash.encode()), _SERVER),
    Buffer("ja3s.string", _TLS, _hello(lambda hello: hello.ja3.encode()), _SERVER),
)  # fmt: skip


def _version(transaction: TlsTransaction, direction: int, wanted: int) -> bool | None:
    side = transaction.sides[direction]
    version = transaction.version if side.hello is None else side.hello.chosen
    return version == wanted


def _versions(transaction: TlsTransaction, direction: int, wanted: tuple[frozenset[int], bool]) -> bool | None:
    side = transaction.sides[direction]
    version = side.hello.chosen if side.hello is not None else side.version
    versions, negated = wanted
    return (version in versions) != negated


def _state(transaction: TlsTransaction, direction: int, wanted: tuple[tuple[str, bool], ...]) -> bool | None:
    states = transaction.sides[direction].states
    return True if any((name in states) != negated for name, negated in wanted) else None


def _chain(transaction: TlsTransaction, direction: int, limits: tuple[int, int, bool]) -> bool:
    low, high, negated = limits
    return (low <= len(transaction.sides[direction].certificates) <= high) != negated


def _dates(transaction: TlsTransaction, direction: int, value: tuple[str, int, int]) -> bool:
    first = transaction.sides[direction].first
    if first is None:
        return False
    which, low, high = value
    now = int(datetime.now(UTC).timestamp())
    if which == "expired":
        return first.not_after < now
    if which == "valid":
        return first.not_before <= now <= first.not_after
    return low <= (first.not_before if which == "notbefore" else first.not_after) <= high


def _old(transaction: TlsTransaction, direction: int, value: tuple[str, str, bool]) -> bool:
    name, wanted, negated = value
    first = transaction.sides[direction].first
    if first is None:
        return False
    text = {"subject": first.subject, "issuerdn": first.issuer, "fingerprint": first.fingerprint}[name]
    return (wanted in text) != negated


CONDITIONS: Final = (
    ConditionKind("tls.version", _TLS, (HELLO, HELLO), _version),
    ConditionKind("ssl_version", _TLS, (HELLO, HELLO), _versions),
    ConditionKind("ssl_state", _TLS, (HELLO, HELLO), _state),
    ConditionKind("tls.cert_chain_len", _TLS, (None, CERTIFICATES), _chain),
    ConditionKind("tls.dates", _TLS, (None, CERTIFICATES), _dates),
    ConditionKind("tls.text", _TLS, _CERTIFICATE, _old),
)


def _read_version(rule: RuleBuilder, value: str) -> None:
    text = value.strip().strip('"')
    version = _VERSIONS.get(f"tls{text}")
    if version is None and re.fullmatch(r"0x[0-9a-fA-F]{4}", text):
        version = int(text, 16)
    if version is None:
        raise RuleError(f"tls.version: {text!r} is none of 1.0, 1.1, 1.2, 1.3 or 0x and four digits")
    rule.add_condition(Condition("tls.version", version), "tls")


def _read_versions(rule: RuleBuilder, value: str) -> None:
    names = [part.strip().lower() for part in value.split(",")]
    negated = {name.startswith("!") for name in names}
    versions = [_VERSIONS.get(name.removeprefix("!").strip()) for name in names]
    if len(negated) > 1 or None in versions:
        raise RuleError(f"ssl_version: {value!r} is not a list of {', '.join(_VERSIONS)}, all or none with '!'")
    known = frozenset(version for version in versions if version is not None)
    rule.add_condition(Condition("ssl_version", (known, True in negated)), "tls")


def _read_state(rule: RuleBuilder, value: str) -> None:
    wanted = []
    for part in re.split(r"[|,]", value):
        name = part.strip()
        negated = name.startswith("!")
        name = name.removeprefix("!").strip()
        if name not in _STATES:
            raise RuleError(f"ssl_state: {name!r} is none of {', '.join(_STATES)}")
        wanted.append((name, negated))
    rule.add_condition(Condition("ssl_state", tuple(wanted)), "tls")


def _limits(text: str, keyword: str) -> tuple[int, int]:
    form = re.fullmatch(r"\s*(?:(<=|>=|<|>|)\s*(\d{1,9})|(\d{1,9})\s*(?:<>|-)\s*(\d{1,9}))\s*", text)
    if form is None:
        raise RuleError(f"{keyword}: {text!r} is not '[<|>|<=|>=]number' or 'number<>number'")
    if form[3] is not None:
        return int(form[3]) + 1, int(form[4]) - 1
    number = int(form[2])
    most = 1 << 62
    return {
        "": (number, number), "<": (0, number - 1), "<=": (0, number), ">": (number + 1, most), ">=": (number, most),
    }[form[1]]  # fmt: skip


def _read_chain(rule: RuleBuilder, value: str) -> None:
    text = value.strip()
    limits = _limits(text.removeprefix("!"), "tls.cert_chain_len")
    rule.add_condition(Condition("tls.cert_chain_len", (*limits, text.startswith("!"))), "tls")


def _moment(text: str, keyword: str) -> int:
    text = text.strip()
    if not _DATE.fullmatch(text):
        raise RuleError(f"{keyword}: {text!r} is no date such as 2024-01-31 or 2024-01-31 12:00:00")
    padded = text.replace("T", " ") + "0000-01-01 00:00:00"[len(text) :]
    try:
        return int(datetime.strptime(padded, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise RuleError(f"{keyword}: {text!r} is no date") from None


def _read_dates(which: str) -> Callable[[RuleBuilder, str], None]:
    keyword = f"tls_cert_{which}"

    def read(rule: RuleBuilder, value: str) -> None:
        low, high = 0, 1 << 62
        if which in ("notbefore", "notafter"):
            form = _PERIOD.fullmatch(value.strip().strip('"'))
            if form is None:
                raise RuleError(f"{keyword}: {value!r} is not '[<|>]date' or 'date<>date'")
            if form[3] is not None:
                low, high = _moment(form[3], keyword) + 1, _moment(form[4], keyword) - 1
            else:
                moment = _moment(form[2], keyword)
                low, high = {None: (moment, moment), "<": (0, moment - 1), ">": (moment + 1, high)}[form[1]]
        rule.add_condition(Condition("tls.dates", (which, low, high)), "tls")

    return read


def _read_text(which: str) -> Callable[[RuleBuilder, str], None]:
    def read(rule: RuleBuilder, value: str) -> None:
        text, negated = unquoted(value.strip(), f"tls.{which}") if '"' in value else (value.strip(), False)
        if not text:
            raise RuleError(f"tls.{which}: empty")
        wanted = text.lower() if which == "fingerprint" else text
        rule.add_condition(Condition("tls.text", (which, wanted, negated)), "tls")

    return read


def _refused(what: str) -> Callable[[RuleBuilder, str], None]:
    def read(rule: RuleBuilder, value: str) -> None:
        raise RuleError(f"{what} is not supported: this engine writes no certificates")

    return read


KEYWORDS: Final = {
    "tls.version": Keyword(_read_version),
    "ssl_version": Keyword(_read_versions),
    "ssl_state": Keyword(_read_state),
    "tls.cert_chain_len": Keyword(_read_chain),
    "tls_cert_notbefore": Keyword(_read_dates("notbefore")),
    "tls_cert_notafter": Keyword(_read_dates("notafter")),
    "tls_cert_expired": Keyword(_read_dates("expired"), value=False),
    "tls_cert_valid": Keyword(_read_dates("valid"), value=False),
    "tls.subject": Keyword(_read_text("subject")),
    "tls.issuerdn": Keyword(_read_text("issuerdn")),
    "tls.fingerprint": Keyword(_read_text("fingerprint")),
    "tls.store": Keyword(_refused("tls.store"), value=False),
}
