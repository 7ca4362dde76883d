"""Plugins are found by entry point, and a broken one is named and left out while the rest works."""

import warnings

import pytest

from flowshunt import plugins
from flowshunt.errors import FlowshuntWarning, InputError
from flowshunt.plugins import discover

ACTION = """
from flowshunt import hookimpl
from flowshunt.action import OffloadAction
from flowshunt.insn import R0, mov64_imm

@hookimpl
def flowshunt_offload_actions():
    return [OffloadAction({name!r}, "drop it", lambda parameters: (mov64_imm(R0, 0),))]
"""


def test_nothing_installed_gives_nothing():
    found = discover([])
    assert (found.plugins, found.left_out, dict(found.actions)) == ((), (), {})


def test_a_plugin_gives_its_objects_by_name(environment):
    module = environment.install("flowshunt-action-hold", ACTION.format(name="hold"), version="2.3")
    found = environment.discover()
    (plugin,) = found.plugins
    assert (plugin.distribution, plugin.version, plugin.module) == ("flowshunt-action-hold", "2.3", module)
    assert plugin.gives == {"actions": ("hold",)}
    assert found.actions["hold"].name == "hold"
    assert not found.left_out


BROKEN_WHOLE = {
    "import error": ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
    "syntax error": ("def (", "SyntaxError: "),
    "exits at import": ("import sys; sys.exit('bye')", "SystemExit: bye"),
    "raises what is no Exception": (
        "class Odd(BaseException): pass\nraise Odd('odd')",
        "Odd: odd",
    ),
    "hook raises": (
        "from flowshunt import hookimpl\n@hookimpl\ndef flowshunt_nic_models(): raise RuntimeError('no card')",
        "flowshunt_nic_models raised RuntimeError: no card",
    ),
    "hook exits": (
        "from flowshunt import hookimpl\n@hookimpl\ndef flowshunt_nic_models(): raise SystemExit(3)",
        "flowshunt_nic_models raised SystemExit: 3",
    ),
    "unknown hook": (
        "from flowshunt import hookimpl\n@hookimpl\ndef flowshunt_nic_modles(): return []",
        "implements the hook flowshunt_nic_modles, which nothing installed specifies",
    ),
    "hook with an argument that nobody gives": (
        "from flowshunt import hookimpl\n@hookimpl\ndef flowshunt_nic_models(config): return []",
        "PluginValidationError: ",
    ),
    "hook that is not marked": (
        "def flowshunt_nic_models(): return []",
        "its flowshunt_nic_models is not marked with flowshunt.hookimpl",
    ),
    "hook wrapper": (
        "from flowshunt import hookimpl\n@hookimpl(wrapper=True)\ndef flowshunt_nic_models(): return (yield)",
        "flowshunt_nic_models is a hook wrapper",
    ),
    "specifications that are no modules": (
        "from flowshunt import hookimpl\n@hookimpl\ndef flowshunt_hookspecs(): return ['hooks']",
        "flowshunt_hookspecs returned str, not modules",
    ),
    "an error without text": ("raise KeyError", "KeyError"),
    "an error that can't be printed": (
        "class Mute(Exception):\n    def __str__(self): raise ValueError\nraise Mute",
        "Mute",
    ),
}


@pytest.mark.parametrize("case", BROKEN_WHOLE)
def test_a_broken_plugin_is_left_out_whole_and_the_rest_works(environment, case):
    code, reason = BROKEN_WHOLE[case]
    environment.install("flowshunt-aaa-before", ACTION.format(name="before"))
    environment.install("flowshunt-broken", code, version="0.9")
    environment.install("flowshunt-zzz-after", ACTION.format(name="after"))
    found = environment.discover()
    (left_out,) = found.left_out
    assert (left_out.distribution, left_out.version, left_out.what) == ("flowshunt-broken", "0.9", "plugin plugin")
    assert reason in left_out.reason
    assert "\n" not in str(left_out)
    assert [plugin.distribution for plugin in found.plugins] == ["flowshunt-aaa-before", "flowshunt-zzz-after"]
    assert sorted(found.actions) == ["after", "before"]


def test_ctrl_c_while_a_plugin_is_imported_is_the_users(environment):
    environment.install("flowshunt-slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        environment.discover()


def test_the_reason_says_where_in_the_plugin_it_failed(environment):
    module = environment.install("flowshunt-broken", "x = 1\ny = x / 0\n")
    (left_out,) = environment.discover().left_out
    assert f"{module}.py, line 2" in left_out.reason


GIVES = """
from types import SimpleNamespace
import attrs
import click
from flowshunt import hookimpl
from flowshunt.action import OffloadAction, Parameter
from flowshunt.operation import ExtendedOperation, NativeEmit
from flowshunt.payload import Layout, number, result
from flowshunt.insn import R0, mov64_imm

def drop(parameters):
    return (mov64_imm(R0, 0),)

def action(**changes):
    return OffloadAction(**{{"name": "held", "summary": "s", "fragment": drop, **changes}})

def nic(**changes):
    return SimpleNamespace(**{{
        "name": "card", "summary": "s", "ports": 1, "line_rate": 10.0, "memory": 0, "flow_table_capacity": 0,
        "host_buffers": 4, "zero_copy": True, "actions": frozenset(), "open": print, **changes}})

def operation(**changes):
    return ExtendedOperation(**{{
        "name": "op", "summary": "s", "max_instructions": 2, "max_bytes": 8, "emits": {{}}, "layout": Layout(),
        "proof": print, "recognizer": print, **changes}})

def engine(**changes):
    return SimpleNamespace(**{{"name": "eng", "summary": "s", "open": print, **changes}})

class Property:
    summary = "s"
    open = print
    @property
    def name(self):
        raise RuntimeError("not now")

@hookimpl
def flowshunt_{hook}():
    return [GOOD, {thing}]

@hookimpl
def flowshunt_cli_commands():
    return [click.Command("extra")]

GOOD = {good}
"""

HOOKS = {
    "nic": ("nic_models", "nic_models", "nic(name='good')"),
    "action": ("offload_actions", "actions", "action(name='good')"),
    "operation": ("extended_operations", "operations", "operation(name='good')"),
    "engine": ("detection_engines", "engines", "engine(name='good')"),
}

BREACHES = [
    ("nic", "nic(name='Card')", "name is 'Card', not a name in lower case"),
    ("nic", "nic(name='')", "name is ''"),
    ("nic", "nic(name=None)", "name is None"),
    ("nic", "nic(summary='')", "summary is '', not one line"),
    ("nic", "nic(summary='a\\nb')", "not one line"),
    ("nic", "nic(ports=0)", "ports is 0, outside 1 to"),
    ("nic", "nic(ports=True)", "ports is True, not a number of the right type"),
    ("nic", "nic(line_rate=0.0)", "line_rate is 0"),
    ("nic", "nic(line_rate=float('nan'))", "line_rate is nan"),
    ("nic", "nic(memory=-1)", "memory is -1"),
    ("nic", "nic(zero_copy=None)", "zero_copy is not True or False"),
    ("nic", "nic(flow_table_capacity=1.5)", "flow_table_capacity is 1.5"),
    ("nic", "nic(host_buffers=129)", "host_buffers is 129, outside 1 to 128"),
    ("nic", "nic(actions=['drop'])", "actions is of type list, not a frozenset"),
    ("nic", "nic(actions=frozenset({'Drop'}))", "'Drop'"),
    ("nic", "nic(open=None)", "open is not callable"),
    ("nic", "SimpleNamespace(name='card', summary='s')", "has no ports"),
    ("nic", "None", "None has no name"),
    ("nic", "nic", "of type function has no name"),
    ("nic", "SimpleNamespace", "it is the class SimpleNamespace, not an object of it"),
    ("nic", "Property()", "its attributes raise RuntimeError: not now"),
    ("action", "nic(name='held')", "of type SimpleNamespace, not a flowshunt.action.OffloadAction"),
    ("action", "action(name='9lives')", "name is '9lives'"),
    ("action", "action(fragment=None)", "fragment is not callable"),
    ("action", "action(parameters=[Parameter('a', 's')])", "parameters is of type list, not a tuple"),
    ("action", "action(parameters=(Parameter('a', 's'), Parameter('a', 's')))", "parameter a stands twice"),
    ("action", "action(parameters=(Parameter('a', 's', 5, 4),))", "maximum is 4, outside 5 to"),
    ("action", "action(parameters=(Parameter('a', 's', -1, 4),))", "minimum is -1"),
    ("action", "action(parameters=(Parameter('a', 's', 0, 4, 5),))", "default is 5, outside 0 to 4"),
    ("operation", "operation(max_instructions=0)", "max_instructions is 0"),
    ("operation", "operation(emits=None)", "emits is None, not a mapping"),
    ("operation", "operation(emits={'x86': []})", "emits names the architecture 'x86' (known: arm64, x86_64)"),
    ("operation", "operation(emits={'arm64': [print]})", "not a sequence of flowshunt.operation.NativeEmit"),
    ("operation", "operation(emits={'arm64': [NativeEmit(None)]})", "assembly is not callable"),
    ("operation", "operation(emits={'arm64': [NativeEmit(print, cost=-1.0)]})", "cost is -1.0"),
    ("operation", "operation(emits={'x86_64': [NativeEmit(print, features='bmi1')]})", "features is of type str"),
    (
        "operation",
        "operation(emits={'x86_64': [NativeEmit(print, features=frozenset({'atomics'}))]})",
        "emits['x86_64'] needs the CPU feature atomics (known: abm",
    ),
    ("operation", "operation(max_bytes=0)", "max_bytes is 0"),
    ("operation", "operation(layout=None)", "layout is None, not a flowshunt.payload.Layout"),
    ("operation", "operation(layout=Layout(number('9', 4)))", "called '9', which is no identifier"),
    ("operation", "operation(recognizer=None)", "recognizer is not callable"),
    ("operation", "operation(proof=3)", "proof is not callable"),
    ("operation", "operation(cost=3)", "cost is not callable"),
    ("operation", "nic(name='op')", "of type SimpleNamespace, not a flowshunt.operation.ExtendedOperation"),
    ("engine", "engine(open=3)", "open is not callable"),
    ("engine", "SimpleNamespace(name='eng', open=print)", "has no summary"),
]


@pytest.mark.parametrize(("kind", "thing", "reason"), BREACHES)
def test_an_object_that_breaks_its_contract_is_left_out_alone(environment, kind, thing, reason):
    hook, key, good = HOOKS[kind]
    environment.install("flowshunt-half", GIVES.format(hook=hook, thing=thing, good=good))
    found = environment.discover()
    (left_out,) = found.left_out
    assert reason in left_out.reason
    assert left_out.distribution == "flowshunt-half"
    assert list(getattr(found, key)) == ["good"]
    assert list(found.commands) == ["extra"]


def test_a_sequence_that_raises_is_a_hook_that_raises(environment):
    code = """
        from collections.abc import Sequence
        from flowshunt import hookimpl
        class Odd(Sequence):
            def __len__(self): return 1
            def __getitem__(self, index): raise RuntimeError("no item")
        @hookimpl
        def flowshunt_offload_actions(): return Odd()
        """
    environment.install("flowshunt-odd", code)
    (left_out,) = environment.discover().left_out
    assert "flowshunt_offload_actions raised RuntimeError: no item" in left_out.reason


@pytest.mark.parametrize("result", ["None", "'drop'", "iter([])", "7", "{}"])
def test_a_hook_that_returns_no_sequence_gives_nothing(environment, result):
    code = f"from flowshunt import hookimpl\n@hookimpl\ndef flowshunt_offload_actions(): return {result}\n"
    environment.install("flowshunt-odd", code)
    found = environment.discover()
    (left_out,) = found.left_out
    assert "not a sequence" in left_out.reason
    assert not found.actions


def test_the_first_to_have_a_name_by_distribution_keeps_it(environment):
    environment.install("flowshunt-two", ACTION.format(name="hold"), version="2.0")
    environment.install("flowshunt-one", ACTION.format(name="hold"), version="1.0")
    found = environment.discover()
    (left_out,) = found.left_out
    assert left_out.distribution == "flowshunt-two"
    assert left_out.what == "offload action hold"
    assert left_out.reason == "the name hold is taken by flowshunt-one 1.0"
    assert [plugin.gives for plugin in found.plugins] == [{"actions": ("hold",)}, {"actions": ()}]


def test_a_name_may_stand_in_two_kinds(environment):
    hook, _, good = HOOKS["nic"]
    environment.install("flowshunt-a", GIVES.format(hook=hook, thing="nic()", good=good))
    environment.install("flowshunt-b", ACTION.format(name="good"))
    found = environment.discover()
    assert not found.left_out
    assert "good" in found.nic_models
    assert "good" in found.actions


@pytest.mark.parametrize("name", ["run", "plugins"])
def test_a_plugin_cannot_replace_a_command_of_the_core(environment, name):
    code = f"""
        import click
        from flowshunt import hookimpl
        @hookimpl
        def flowshunt_cli_commands():
            return [click.Command({name!r}), click.Command("mine")]
        """
    environment.install("flowshunt-pushy", code)
    found = environment.discover()
    (left_out,) = found.left_out
    assert left_out.reason == f"the name {name} is taken by flowshunt-core"
    assert list(found.commands) == ["mine"]


SPECS = """
import sys
import pluggy
from flowshunt import hookimpl
hookspec = pluggy.HookspecMarker("flowshunt")

@hookspec
def flowshunt_ids_keywords(engine, dialect):
    "Keywords."

@hookimpl
def flowshunt_hookspecs():
    return [sys.modules[__name__]]
"""


def test_a_plugin_may_add_hooks_that_others_implement(environment):
    implement = "from flowshunt import hookimpl\n@hookimpl\ndef flowshunt_ids_keywords({0}): return {1}\n"
    environment.install("flowshunt-a", implement.format("engine", "[engine]"))
    environment.install("flowshunt-b", implement.format("", "1 / 0"))
    environment.install("flowshunt-c", SPECS)
    environment.install("flowshunt-d", implement.format("dialect, engine", "[dialect, engine]"))
    found = environment.discover()
    assert not found.left_out
    with pytest.warns(FlowshuntWarning, match="of flowshunt-b 1.0 is left out: it raised ZeroDivisionError"):
        results = list(found.call("flowshunt_ids_keywords", engine="e", dialect="d"))
    assert [(plugin.distribution, result) for plugin, result in results] == [
        ("flowshunt-a", ["e"]),
        ("flowshunt-d", ["d", "e"]),
    ]


def test_a_hook_of_a_plugin_that_is_not_installed_is_unknown(environment):
    environment.install(
        "flowshunt-a", "from flowshunt import hookimpl\n@hookimpl\ndef flowshunt_ids_keywords(): pass\n"
    )
    (left_out,) = environment.discover().left_out
    assert "flowshunt_ids_keywords" in left_out.reason


def test_an_optional_hook_needs_no_specification(environment):
    code = "from flowshunt import hookimpl\n@hookimpl(optionalhook=True)\ndef flowshunt_ids_keywords(): pass\n"
    environment.install("flowshunt-a", code)
    assert not environment.discover().left_out


def test_each_thing_left_out_is_told_in_one_warning(environment, installed):
    environment.install("flowshunt-broken", "import no_such_module_at_all", version="0.9")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        installed()
        plugins.load_plugins()
    (warning,) = told
    assert issubclass(warning.category, FlowshuntWarning)
    text = str(warning.message)
    assert "flowshunt-broken 0.9" in text
    assert "No module named 'no_such_module_at_all'" in text


def test_an_unknown_name_is_answered_with_the_names_there_are(environment, installed):
    environment.install("flowshunt-a", ACTION.format(name="hold"))
    environment.install("flowshunt-b", ACTION.format(name="let-go"))
    installed()
    assert plugins.action("hold").name == "hold"
    with pytest.raises(InputError, match=r"there is no offload action 'dorp' \(installed: hold, let-go\)"):
        plugins.action("dorp")
    with pytest.raises(InputError, match=r"there is no NIC model 'card' \(installed: none\)"):
        plugins.nic_model("card")


@pytest.mark.filterwarnings("ignore::flowshunt.errors.FlowshuntWarning")
def test_an_unknown_name_that_was_left_out_is_answered_with_the_reason(environment, installed):
    hook, _, good = HOOKS["engine"]
    environment.install("flowshunt-half", GIVES.format(hook=hook, thing="engine(open=3)", good=good))
    installed()
    with pytest.raises(InputError, match=r"flowshunt-half 1\.0 is left out: open is not callable"):
        plugins.engine("eng")


@pytest.mark.filterwarnings("ignore::flowshunt.errors.FlowshuntWarning")
def test_a_plugin_that_was_left_out_whole_may_be_why_a_name_is_unknown(environment, installed):
    environment.install("flowshunt-broken", "import no_such_module_at_all")
    installed()
    with pytest.raises(InputError, match=r"flowshunt-broken 1\.0 is left out: ModuleNotFoundError"):
        plugins.operation("rotate")
