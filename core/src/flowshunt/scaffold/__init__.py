"""New plugins: a distribution that works, with tests, for an author to change."""

import shutil
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

import attrs

from flowshunt.contracts import KINDS, NAME, Kind
from flowshunt.errors import InputError
from flowshunt.plugins import load_plugins

_SUFFIX = ".tmpl"
_MAX_NAME = 40


@attrs.frozen
class Scaffold:
    """What is written for a kind: the templates' folder, and the word for it in the distribution's name."""

    folder: str
    word: str


_SCAFFOLDS: Mapping[str, Scaffold] = {
    "nic_models": Scaffold("nic", "nic"),
    "actions": Scaffold("action", "action"),
    "operations": Scaffold("operation", "einsn"),
    "engines": Scaffold("engine", "engine"),
}


def write_plugin(kind: str, name: str, folder: Path) -> Path:
    """Write a plugin of a kind ("nic", "action", "operation", "engine") into a new folder of `folder`.

    Returns the new folder. Raises InputError for an unknown kind, a name that can't be used or is taken, and a folder
    that exists; then nothing is left behind.
    """
    chosen = _kind(kind)
    _check_name(chosen, name)
    scaffold = _SCAFFOLDS[chosen.key]
    distribution = f"flowshunt-{scaffold.word}-{name.replace('_', '-')}"
    words = {
        "name": name,
        "Name": "".join(part.capitalize() for part in name.replace("_", "-").split("-")),
        "NAME": name.replace("-", "_").upper(),
        "module": name.replace("-", "_"),
        "kind": scaffold.folder,
        "noun": chosen.noun,
        "distribution": distribution,
        "package": distribution.replace("-", "_"),
        "plugin": distribution.removeprefix("flowshunt-").replace("-", "_"),
    }
    target = folder / distribution
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target.mkdir()
    except FileExistsError:
        raise InputError("it exists already", str(target), "choose another name or --dir, or remove it") from None
    except OSError as error:
        raise InputError(str(error.strerror), str(target), "choose another --dir") from None
    try:
        for part in ("common", scaffold.folder):
            _write(files("flowshunt.scaffold") / "templates" / part, target, words)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target


def _kind(word: str) -> Kind:
    for kind in KINDS:
        if word.lower() in kind.aliases:
            return kind
    words = ", ".join(kind.aliases[0] for kind in KINDS if kind.aliases)
    raise InputError(f"there is no kind of plugin {word!r}", way_out=f"choose one of {words}")


def _check_name(kind: Kind, name: str) -> None:
    if not NAME.fullmatch(name) or len(name) > _MAX_NAME or name[-1] in "-_" or "--" in name.replace("_", "-"):
        raise InputError(
            f"{name!r} can't be a plugin's name",
            way_out=f"lower-case words of letters and digits, joined by '-' or '_', at most {_MAX_NAME} characters",
        )
    for plugin in load_plugins().plugins:
        if name in plugin.gives.get(kind.key, ()):
            raise InputError(
                f"{plugin.distribution} has the {kind.noun} {name} already",
                way_out="two can't share a name: choose another",
            )


def _write(template: Traversable, target: Path, words: Mapping[str, str]) -> None:
    for entry in template.iterdir():
        path = target / entry.name.removesuffix(_SUFFIX).replace("PACKAGE", words["package"]).replace(
            "MODULE", words["module"]
        )
        if entry.is_dir():
            path.mkdir(exist_ok=True)
            _write(entry, path, words)
        else:
            path.write_text(Template(entry.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
