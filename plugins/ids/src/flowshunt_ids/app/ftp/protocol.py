"""FTP as protocols of the application layer: recognition, conditions, keywords, EVE."""

from typing import Any

from flowshunt_ids.app.contract import TO_CLIENT, AppProtocol, ConditionKind, DetectionPattern
from flowshunt_ids.app.ftp.parser import COMPLETE, FtpDataParser, FtpDataTransaction, FtpParser, FtpTransaction
from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Condition


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def event(transaction: FtpTransaction) -> tuple[str, dict[str, Any]] | None:
    """The `ftp` event of a command."""
    fields: dict[str, Any] = {}
    if transaction.command:
        fields["command"] = transaction.command
    argument = transaction.request[len(transaction.command) + 1 :] if transaction.command else b""
    if argument:
        fields["command_data"] = _text(argument)
        fields["command_truncated"] = "request" in transaction.cut
    codes: list[str] = []
    replies: list[str] = []
    for line in transaction.replies:
        if len(line) >= 3 and line[:3].isdigit():
            codes.append(_text(line[:3]))
            if len(line) >= 4:
                replies.append(_text(line[4:]))
        else:
            replies.append(_text(line))
    if codes:
        fields["completion_code"] = codes
    if replies:
        fields["reply"] = replies
    if transaction.port:
        fields["dynamic_port"] = transaction.port
    if transaction.command in ("PORT", "EPRT"):
        fields["mode"] = "active" if transaction.active else "passive"
    fields["reply_received"] = "yes" if transaction.done else "no"
    fields["reply_truncated"] = "reply" in transaction.cut
    return "ftp", fields


def data_event(transaction: FtpDataTransaction) -> tuple[str, dict[str, Any]] | None:
    """The `ftp_data` event of a connection for data."""
    return "ftp_data", {"filename": _text(transaction.transfer.name), "command": transaction.transfer.command}


def _bounce(transaction: FtpTransaction, _direction: int, _value: Any) -> bool:
    return transaction.bounce


def _data_command(transaction: FtpDataTransaction, direction: int, value: str) -> bool:
    if transaction.transfer.command != value:
        return False
    return (value == "RETR") == (direction == TO_CLIENT)


def _read_bounce(rule: RuleBuilder, _value: str) -> None:
    rule.add_condition(Condition("ftpbounce", None), "ftp")


def _read_data_command(rule: RuleBuilder, value: str) -> None:
    command = value.strip()
    if command not in ("stor", "retr"):
        raise RuleError(f"ftpdata_command: {command!r} is neither stor nor retr")
    rule.add_condition(Condition("ftpdata_command", command.upper()), "ftp-data")


FTP = AppProtocol(
    "ftp",
    FtpParser,
    (COMPLETE, COMPLETE),
    patterns=(
        DetectionPattern(b"220 (", TO_CLIENT, nocase=True),
        *(DetectionPattern(word, nocase=True) for word in (b"FEAT", b"USER ", b"PASS ", b"PORT ")),
    ),
    events=frozenset({"request_command_too_long", "response_command_too_long"}),
    eve=event,
    eve_types=frozenset({"ftp"}),
    expects=frozenset({"ftp-data"}),
)
FTP_DATA = AppProtocol(
    "ftp-data",
    FtpDataParser,
    (COMPLETE, COMPLETE),
    eve=data_event,
    eve_types=frozenset({"ftp_data", "fileinfo"}),
    settings="ftp",
)
CONDITIONS = (
    ConditionKind("ftpbounce", ("ftp",), (1, None), _bounce),
    ConditionKind("ftpdata_command", ("ftp-data",), (1, 1), _data_command),
)
KEYWORDS = {"ftpbounce": Keyword(_read_bounce, value=None), "ftpdata_command": Keyword(_read_data_command)}
