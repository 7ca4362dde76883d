"""The condition on what parsers found wrong: `app-layer-event`."""

from typing import Any

from flowshunt_ids.app.contract import ConditionKind


def _judge(transaction: Any, direction: int, name: str) -> bool | None:
    return True if (direction, name) in transaction.events else None


CONDITIONS = (ConditionKind("app-layer-event", (), (0, 0), _judge),)
