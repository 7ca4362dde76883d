"""Rule keywords: for each, a function that reads its value into a `RuleBuilder`."""

from flowshunt_ids.rules.keywords.builder import Keyword
from flowshunt_ids.rules.keywords.bytes import BYTE_KEYWORDS
from flowshunt_ids.rules.keywords.content import CONTENT_KEYWORDS
from flowshunt_ids.rules.keywords.flow import FLOW_KEYWORDS
from flowshunt_ids.rules.keywords.meta import META_KEYWORDS
from flowshunt_ids.rules.keywords.packet import PACKET_KEYWORDS
from flowshunt_ids.rules.keywords.pcre import PCRE_KEYWORDS

KEYWORDS: dict[str, Keyword] = {
    **META_KEYWORDS,
    **CONTENT_KEYWORDS,
    **BYTE_KEYWORDS,
    **PCRE_KEYWORDS,
    **PACKET_KEYWORDS,
    **FLOW_KEYWORDS,
}
"""Every keyword that a rule may use."""

__all__ = ["KEYWORDS", "Keyword"]
