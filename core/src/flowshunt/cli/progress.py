"""Progress, on a terminal only: a bar over bytes read, and a line about what is being done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def reading_bar(quiet: bool) -> Iterator[Callable[[str, int, int | None], None]]:
    """A function that shows (what, bytes read, bytes in all) on standard error; it does nothing off a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, object] = {}

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield show


@contextmanager
def working(what: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done on standard error; it does nothing off a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda text: None
        return
    with console.status(what) as status:
        yield lambda text: status.update(f"{what}: {text}")
