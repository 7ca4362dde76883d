"""A request with its response."""

from flowshunt_ids.app.contract import Transaction
from flowshunt_ids.app.http.body import Body
from flowshunt_ids.app.http.headers import Fields

LINE, HEADERS, BODY, TRAILER, COMPLETE = 1, 2, 3, 4, 5
"""Progress of a direction: what is being read. Fields are there from BODY on."""


class HttpTransaction(Transaction):
    """A request with its response, as far as they have come.

    Attributes:
        line, method, target, protocol: of the request line; None until it is there.
        uri: the target normalized. host: of the target or else of the Host field, in lower case.
        status_line, version, status, message: of the response line.
        fields, bodies: for each direction.
        built: buffers that were put together, by name, direction, and bytes of the fields that they are of.
    """

    __slots__ = (
        "authority",
        "bodies",
        "built",
        "fields",
        "host",
        "line",
        "message",
        "method",
        "old",
        "port",
        "protocol",
        "status",
        "status_line",
        "status_number",
        "target",
        "uri",
        "version",
    )

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.line: bytes | None = None
        self.method: bytes | None = None
        self.target: bytes | None = None
        self.protocol: bytes | None = None
        self.uri: bytes | None = None
        self.authority: bytes | None = None
        self.host: bytes | None = None
        self.port: bytes | None = None
        self.old = False
        self.status_line: bytes | None = None
        self.version: bytes | None = None
        self.status: bytes | None = None
        self.status_number = 0
        self.message: bytes | None = None
        self.fields = [Fields(), Fields()]
        self.bodies: list[Body | None] = [None, None]
        self.built: dict[tuple[str, int, int], bytes | None] = {}

    def looked(self, direction: int) -> None:
        """Note that rules looked at one direction."""
        body = self.bodies[direction]
        if body is not None:
            body.looked(self.progress[direction] > BODY)
