"""Plugin entry point."""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from flowshunt import hookimpl
from flowshunt.engine import DetectionEngine
from flowshunt_ids.engine import IdsEngine

if TYPE_CHECKING:
    import click

    from flowshunt_ids.rules.language import TransformKeyword

if TYPE_CHECKING:
    from flowshunt_ids.app.contract import AppProtocol, Buffer, ConditionKind
    from flowshunt_ids.rules.keywords.builder import Keyword


@hookimpl
def flowshunt_detection_engines() -> Sequence[DetectionEngine]:
    """The engine `ids`."""
    return [IdsEngine()]


@hookimpl
def flowshunt_hookspecs() -> Sequence[ModuleType]:
    """The engine's own hooks."""
    from flowshunt_ids import hookspecs

    return [hookspecs]


@hookimpl
def flowshunt_ids_protocols() -> "Sequence[AppProtocol]":
    """HTTP/1.x, DNS, SMTP, and FTP with its connections for data."""
    from flowshunt_ids.app.dns.protocol import DNS
    from flowshunt_ids.app.ftp.protocol import FTP, FTP_DATA
    from flowshunt_ids.app.http.protocol import HTTP
    from flowshunt_ids.app.smtp.protocol import SMTP

    return [HTTP, DNS, SMTP, FTP, FTP_DATA]


@hookimpl
def flowshunt_ids_buffers() -> "Sequence[Buffer]":
    """Those of HTTP and DNS, and of files (SMTP and FTP have no others)."""
    from flowshunt_ids.app import files
    from flowshunt_ids.app.dns import protocol as dns
    from flowshunt_ids.app.http import buffers

    return [*buffers.BUFFERS, *dns.BUFFERS, *files.BUFFERS]


@hookimpl
def flowshunt_ids_conditions() -> "Sequence[ConditionKind]":
    """On events, files, the length of HTTP's targets, DNS operations, and FTP's commands."""
    from flowshunt_ids.app import events, files
    from flowshunt_ids.app.dns import protocol as dns
    from flowshunt_ids.app.ftp import protocol as ftp
    from flowshunt_ids.app.http import buffers

    return [*events.CONDITIONS, *files.CONDITIONS, *buffers.CONDITIONS, *dns.CONDITIONS, *ftp.CONDITIONS]


@hookimpl
def flowshunt_ids_keywords() -> "Mapping[str, Keyword]":
    """Those of application layers in general, of DNS and of FTP."""
    from flowshunt_ids.app.dns import protocol as dns
    from flowshunt_ids.app.ftp import protocol as ftp
    from flowshunt_ids.app.keywords import KEYWORDS

    return {**KEYWORDS, **dns.KEYWORDS, **ftp.KEYWORDS}


@hookimpl
def flowshunt_ids_transforms() -> "Sequence[TransformKeyword]":
    """The transforms of buffers."""
    from flowshunt_ids.rules.transforms import TRANSFORMS

    return TRANSFORMS


@hookimpl
def flowshunt_cli_commands() -> "Sequence[click.Command]":
    """`flowshunt rules`."""
    from flowshunt_ids.check.command import command

    return [command]
