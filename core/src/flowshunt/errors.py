"""Errors that reach the user: each names the input, the place in it, and the way out."""


class FlowshuntError(Exception):
    """Base of all errors that flowshunt raises on purpose. The command prints its text on one line and exits with 2."""


class InputError(FlowshuntError):
    """An input can't be used: a file that is missing, unreadable or not of its kind; wrong options."""

    def __init__(self, what: str, where: str = "", way_out: str = "") -> None:
        self.what = what
        self.where = where
        self.way_out = way_out
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text} ({way_out})" if way_out else text)


class ContractError(FlowshuntError):
    """A plugin returned something that breaks its contract."""


class CapabilityError(FlowshuntError):
    """A NIC model, engine or machine can't do what was asked."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived. Treated like Ctrl-C."""


class FlowshuntWarning(UserWarning):
    """Something was left out or cut short, and the rest works. The command shows it as one line on standard error."""
