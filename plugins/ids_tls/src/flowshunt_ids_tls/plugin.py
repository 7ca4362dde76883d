"""The plugin: what it gives to the detection engine."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flowshunt import hookimpl

if TYPE_CHECKING:
    from flowshunt_ids.app.contract import AppProtocol, Buffer, BypassWish, ConditionKind
    from flowshunt_ids.rules.keywords.builder import Keyword


@hookimpl
def flowshunt_ids_protocols() -> "Sequence[AppProtocol]":
    """TLS."""
    from flowshunt_ids_tls.protocol import TLS

    return (TLS,)


@hookimpl
def flowshunt_ids_buffers() -> "Sequence[Buffer]":
    """SNI, certificates, randoms, JA3."""
    from flowshunt_ids_tls.buffers import BUFFERS

    return BUFFERS


@hookimpl
def flowshunt_ids_conditions() -> "Sequence[ConditionKind]":
    """On versions, states, dates and texts of certificates."""
    from flowshunt_ids_tls.buffers import CONDITIONS

    return CONDITIONS


@hookimpl
def flowshunt_ids_keywords() -> "Mapping[str, Keyword]":
    """The keywords of those conditions."""
    from flowshunt_ids_tls.buffers import KEYWORDS

    return KEYWORDS


@hookimpl
def flowshunt_ids_bypass_policies() -> "Sequence[BypassWish]":
    """Flows whose handshake is over, where the configuration says so."""
    from flowshunt_ids_tls.protocol import BYPASS

    return (BYPASS,)
