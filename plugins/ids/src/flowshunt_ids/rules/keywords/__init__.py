"""Rule keywords: for each, a function that reads its value into a `RuleBuilder`."""

from flowshunt_ids.rules.keywords.builder import Keyword
from flowshunt_ids.rules.keywords.bytes import BYTE_KEYWORDS
from flowshunt_ids.rules.keywords.content import CONTENT_KEYWORDS
from flowshunt_ids.rules.keywords.datasets import DATASET_KEYWORDS
from flowshunt_ids.rules.keywords.flow import FLOW_KEYWORDS
from flowshunt_ids.rules.keywords.limits import LIMIT_KEYWORDS
from flowshunt_ids.rules.keywords.meta import META_KEYWORDS
from flowshunt_ids.rules.keywords.packet import PACKET_KEYWORDS
from flowshunt_ids.rules.keywords.pcre import PCRE_KEYWORDS
from flowshunt_ids.rules.keywords.state import STATE_KEYWORDS

KEYWORDS: dict[str, Keyword] = {
    **META_KEYWORDS,
    **CONTENT_KEYWORDS,
    **BYTE_KEYWORDS,
    **PCRE_KEYWORDS,
    **PACKET_KEYWORDS,
    **FLOW_KEYWORDS,
    **STATE_KEYWORDS,
    **LIMIT_KEYWORDS,
    **DATASET_KEYWORDS,
}
"""The keywords that belong to no application layer."""

QUOTED = frozenset(
    {"msg", "content", "pcre", "replace", "tos", "ip_proto", "reference", "metadata", "classtype", "priority"}
)
"""The keywords whose value may stand in quotes."""
UNQUOTED = frozenset(KEYWORDS) - QUOTED

__all__ = ["KEYWORDS", "UNQUOTED", "Keyword"]
