"""The buffers and conditions on SSH connections, and the old keywords that set them."""

from collections.abc import Callable
from typing import Any, Final

from flowshunt_ids.app.contract import Buffer, ConditionKind
from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Condition
from flowshunt_ids_ssh.parser import BANNER, KEYS, Side, SshTransaction

_SSH: Final = ("ssh",)


def _of(get: Callable[[Side], bytes | str | None]) -> Callable[[SshTransaction, int], bytes | None]:
    def found(transaction: SshTransaction, direction: int) -> bytes | None:
        value = get(transaction.sides[direction])
        return value.encode("latin-1") if isinstance(value, str) else value

    return found


_HASH = _of(lambda side: side.hassh_hash)
_TEXT = _of(lambda side: side.hassh)

BUFFERS: Final = (
    Buffer("ssh.proto", _SSH, _of(lambda side: side.protocol), (BANNER, BANNER), aliases=("ssh_proto",)),
    Buffer("ssh.software", _SSH, _of(lambda side: side.software), (BANNER, BANNER), aliases=("ssh_software",)),
    Buffer("ssh.hassh", _SSH, _HASH, (KEYS, None)),
    Buffer("ssh.hassh.string", _SSH, _TEXT, (KEYS, None)),
    Buffer("ssh.hassh.server", _SSH, _HASH, (None, KEYS)),
    Buffer("ssh.hassh.server.string", _SSH, _TEXT, (None, KEYS)),
)


def _text(transaction: SshTransaction, direction: int, value: tuple[str, bytes]) -> bool:
    side = transaction.sides[direction]
    which, wanted = value
    found = side.protocol if which == "protocol" else side.software
    if found is None:
        return False
    if which == "protocol" and wanted == b"2_compat":
        return found in (b"2", b"2.0", b"1.99")
    return found == wanted


CONDITIONS: Final = (ConditionKind("ssh.text", _SSH, (BANNER, BANNER), _text),)


def _read(which: str, keyword: str) -> Callable[[RuleBuilder, str], None]:
    def read(rule: RuleBuilder, value: str) -> None:
        text = value.strip().strip('"').strip()
        if not text:
            raise RuleError(f"{keyword}: empty")
        wanted: Any = text.encode("utf-8", "surrogateescape")
        rule.add_condition(Condition("ssh.text", (which, wanted)), "ssh")

    return read


KEYWORDS: Final = {
    "ssh.protoversion": Keyword(_read("protocol", "ssh.protoversion")),
    "ssh.softwareversion": Keyword(_read("software", "ssh.softwareversion")),
}
