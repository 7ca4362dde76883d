"""The extended operations that are installed, by name and by id, and a choice of them."""

from collections.abc import Iterable, Mapping

from flowshunt.errors import InputError
from flowshunt.operation import ExtendedOperation


def installed_operations() -> Mapping[str, ExtendedOperation]:
    """By name all operations that the installed plugins give."""
    from flowshunt.plugins import load_plugins

    return load_plugins().operations


def by_id(operations: Iterable[ExtendedOperation]) -> dict[int, ExtendedOperation]:
    """Operations by what a site's call names them by. Raises InputError where two share an id."""
    found: dict[int, ExtendedOperation] = {}
    for operation in operations:
        other = found.setdefault(operation.id, operation)
        if other is not operation:
            raise InputError(
                f"the operations {other.name} and {operation.name} share the id {operation.id:#x}",
                way_out="rename one of them, or one of its payload's fields",
            )
    return found


def choose(operations: Mapping[str, ExtendedOperation], names: Iterable[str] | None) -> dict[str, ExtendedOperation]:
    """Operations by their names; None: all. Raises InputError for a name that none has."""
    if names is None:
        return dict(operations)
    chosen = {}
    for name in names:
        if name not in operations:
            raise InputError(
                f"there is no extended operation {name!r}", way_out=f"installed: {', '.join(operations) or 'none'}"
            )
        chosen[name] = operations[name]
    return chosen
