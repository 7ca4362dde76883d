"""Rule keywords of the application layers in general: events, files, and what HTTP has beside buffers."""

import re
from collections.abc import Callable
from pathlib import Path

from flowshunt_ids.app.files import DIGESTS, SIZE, FileTest
from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, unquoted, whole_number
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Condition, Content

_URILEN = re.compile(r"\s*(?:(<=|>=|<|>|)\s*(\d{1,5})|(\d{1,5})\s*<>\s*(\d{1,5}))\s*(?:,\s*(norm|raw)\s*)?")
_LARGEST = 1 << 62
PACKET_EVENTS = frozenset(
    {
        "applayer_mismatch_protocol_both_directions",
        "applayer_wrong_direction_first_data",
        "applayer_detect_protocol_only_one_direction",
        "applayer_proto_detection_skipped",
        "applayer_no_tls_after_starttls",
        "applayer_unexpected_protocol",
    }
)
"""Events of recognizing protocols, which belong to no protocol."""


def _event(rule: RuleBuilder, value: str) -> None:
    from flowshunt_ids.app.registry import registry

    name, dot, event = value.strip().partition(".")
    if not dot:
        if name in PACKET_EVENTS:
            raise RuleError(f"app-layer-event: {name} is not told by this engine yet")
        raise RuleError(f"app-layer-event: {name!r} is not an event")
    protocol = registry().protocols.get(name)
    if protocol is None:
        rule.language.check_protocol(name)
        raise RuleError(f"app-layer-event: {name!r} is not a protocol")
    if event not in protocol.events:
        raise RuleError(f"app-layer-event: protocol {name} has no event {event!r}")
    rule.add_condition(Condition("app-layer-event", event), protocol.name)


def _protocol(rule: RuleBuilder, value: str) -> None:
    name = value.strip()
    negated = name.startswith("!")
    name = name.removeprefix("!").strip()
    if rule.app_protocol is not None:
        raise RuleError(f"app-layer-protocol: the rule is one of protocol {rule.app_protocol} already")
    if name not in ("failed", "unknown"):
        name = rule.language.protocol(name).name
    rule.conditions.append(Condition("app-layer-protocol", (name, negated)))


def _file_test(rule: RuleBuilder, test: FileTest) -> None:
    """Add to what one file of the transaction has to meet."""
    for at, condition in enumerate(rule.app_conditions):
        if condition.name == "file":
            rule.app_conditions[at] = Condition("file", (*condition.value, test))
            return
    rule.add_condition(Condition("file", (test,)))


def _file_text(kind: str) -> Callable[[RuleBuilder, str], None]:
    def read(rule: RuleBuilder, value: str) -> None:
        text, negated = unquoted(value.strip(), f"file{kind}") if '"' in value else (value.strip(), False)
        if not text:
            raise RuleError(f"{kind}: empty")
        _file_test(rule, FileTest(kind, text.encode("utf-8", "surrogateescape").lower(), negated))

    return read


def _file_size(rule: RuleBuilder, value: str) -> None:
    form = SIZE.fullmatch(value)
    if form is None:
        raise RuleError(f"filesize: {value!r} is not '[<|>]bytes' or 'bytes<>bytes'")
    if form[3] is not None:
        _file_test(rule, FileTest("size", ("<>", int(form[3]), int(form[4]))))
    else:
        _file_test(rule, FileTest("size", (form[1], int(form[2]), 0)))


def _file_digest(digest: str) -> Callable[[RuleBuilder, str], None]:
    size = {"md5": 32, "sha1": 40, "sha256": 64}[digest]

    def read(rule: RuleBuilder, value: str) -> None:
        from flowshunt_ids.rules.text_files import read_text

        name = value.strip().strip('"')
        negated = name.startswith("!")
        folder = getattr(rule, "folder", None) or Path()
        path = folder / name.removeprefix("!")
        if not path.is_file():
            raise RuleError(f"file{digest}: can't read the list {path}")
        words = (line.split()[0].lower() for line in read_text(path, "list of digests").splitlines() if line.strip())
        known = frozenset(word for word in words if len(word) == size and set(word) <= set("0123456789abcdef"))
        _file_test(rule, FileTest("digest", (digest, known), negated))

    return read


def _file_store(rule: RuleBuilder, _value: str) -> None:
    _file_test(rule, FileTest("store"))


def _uri_length(rule: RuleBuilder, value: str) -> None:
    form = _URILEN.fullmatch(value)
    if form is None:
        raise RuleError(f"urilen: {value!r} is not '[<|>|<=|>=]length' or 'length<>length', with ',raw' or ',norm'")
    if form[3] is not None:
        low, high = int(form[3]) + 1, int(form[4]) - 1
    else:
        number = whole_number(form[2], "urilen", 0, 65535)
        low, high = {
            "": (number, number),
            "<": (0, number - 1),
            "<=": (0, number),
            ">": (number + 1, _LARGEST),
            ">=": (number, _LARGEST),
        }[form[1]]
    rule.add_condition(Condition("urilen", (low, high, False, form[5] == "raw")), "http")


def _uri_content(rule: RuleBuilder, value: str) -> None:
    from flowshunt_ids.rules.keywords.content import parse_pattern

    text, negated = unquoted(value, "uricontent")
    buffer = rule.language.buffers["http.uri"]
    before, rule.sticky = rule.sticky, None
    rule.add_match(Content(parse_pattern(text, "uricontent"), negated=negated))
    rule.move_content(buffer, "uricontent")
    rule.sticky = before


KEYWORDS = {
    "app-layer-event": Keyword(_event),
    "app-layer-protocol": Keyword(_protocol),
    "filename": Keyword(_file_text("name")),
    "fileext": Keyword(_file_text("extension")),
    "filemagic": Keyword(_file_text("magic")),
    "filesize": Keyword(_file_size),
    **{f"file{digest}": Keyword(_file_digest(digest)) for digest in DIGESTS},
    "filestore": Keyword(_file_store, value=None),
    "urilen": Keyword(_uri_length),
    "uricontent": Keyword(_uri_content),
}
