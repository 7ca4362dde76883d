"""The plugin: what it gives to the detection engine."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flowshunt import hookimpl

if TYPE_CHECKING:
    from flowshunt_ids.app.contract import AppProtocol, Buffer, BypassWish, ConditionKind
    from flowshunt_ids.rules.keywords.builder import Keyword


@hookimpl
def flowshunt_ids_protocols() -> "Sequence[AppProtocol]":
    """SSH."""
    from flowshunt_ids_ssh.protocol import SSH

    return (SSH,)


@hookimpl
def flowshunt_ids_buffers() -> "Sequence[Buffer]":
    """Versions, software and HASSH of both sides."""
    from flowshunt_ids_ssh.buffers import BUFFERS

    return BUFFERS


@hookimpl
def flowshunt_ids_conditions() -> "Sequence[ConditionKind]":
    """On the old keywords for versions."""
    from flowshunt_ids_ssh.buffers import CONDITIONS

    return CONDITIONS


@hookimpl
def flowshunt_ids_keywords() -> "Mapping[str, Keyword]":
    """The keywords of those conditions."""
    from flowshunt_ids_ssh.buffers import KEYWORDS

    return KEYWORDS


@hookimpl
def flowshunt_ids_bypass_policies() -> "Sequence[BypassWish]":
    """Flows whose handshake is over, where the configuration says so."""
    from flowshunt_ids_ssh.protocol import BYPASS

    return (BYPASS,)
