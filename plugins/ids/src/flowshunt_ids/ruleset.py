"""Everything that is made once from rules and settings: compiled rules, header classes, databases."""

import attrs

from flowshunt.engine import EngineConfig
from flowshunt_ids.app.registry import registry
from flowshunt_ids.app.stage import AppRules, prepare
from flowshunt_ids.datasets import Datasets
from flowshunt_ids.encoding import EncodedRules, encode
from flowshunt_ids.event_rules import needs_streams
from flowshunt_ids.groups import BypassPolicy, RuleGroups
from flowshunt_ids.header_classes import HeaderClasses
from flowshunt_ids.inspection import InspectionCounters
from flowshunt_ids.prefilter import Prefilter
from flowshunt_ids.rules.loader import LoadedRules, load_rules
from flowshunt_ids.rules.text_files import read_text
from flowshunt_ids.rules.threshold_file import apply_entries, read_entries
from flowshunt_ids.settings import Settings, load_settings


@attrs.frozen(eq=False)
class RuleSet:
    """A loaded rule set, ready for a session."""

    settings: Settings
    loaded: LoadedRules
    encoded: EncodedRules
    classes: HeaderClasses
    prefilter: Prefilter
    policy: BypassPolicy
    datasets: Datasets

    app: AppRules
    counters: InspectionCounters
    events: frozenset[str] = frozenset()

    def groups(self) -> RuleGroups:
        """A fresh table of rule groups."""
        return RuleGroups(
            self.loaded.rules,
            self.encoded,
            self.classes,
            self.prefilter.classes,
            self.policy,
            self.app.numbers,
            parse=bool(self.events) or any(needs_streams(rule) for rule in self.loaded.rules),
        )


def load_rule_set(config: EngineConfig) -> RuleSet:
    """Load what a run asks for. Raises `flowshunt.errors.InputError`."""
    settings = load_settings(config)
    loaded = _with_settings(
        load_rules(config.rules or settings.rule_files, settings.variables, settings.classification), settings
    )
    encoded = encode(loaded.rules)
    counters = InspectionCounters()
    return RuleSet(
        settings,
        loaded,
        encoded,
        HeaderClasses(loaded.rules),
        Prefilter(loaded.rules, encoded.patterns),
        BypassPolicy(config.bypass, settings.bypass_action),
        loaded.datasets,
        prepare(loaded.rules, registry(), counters, loaded.datasets),
        counters,
        config.events,
    )


def _with_settings(loaded: LoadedRules, settings: Settings) -> LoadedRules:
    """Rules with the limits of the threshold file, and with what is to be said of the settings."""
    warnings = [*settings.warnings, *loaded.warnings]
    rules = loaded.rules
    path = settings.threshold_file
    if path is not None:
        entries, notes = read_entries(read_text(path, "threshold file"), settings.variables.addresses, str(path))
        rules = tuple(apply_entries(rules, entries))
        warnings += notes
    return attrs.evolve(loaded, rules=rules, warnings=tuple(warnings))
