"""Everything that is made once from rules and settings: compiled rules, header classes, databases."""

import attrs

from flowshunt.engine import EngineConfig
from flowshunt_ids.datasets import Datasets
from flowshunt_ids.encoding import EncodedRules, encode
from flowshunt_ids.groups import BypassPolicy, RuleGroups
from flowshunt_ids.header_classes import HeaderClasses
from flowshunt_ids.prefilter import Prefilter
from flowshunt_ids.rules.loader import LoadedRules, load_rules
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

    @property
    def has_app_layer(self) -> bool:
        """Whether any rule looks at an application layer."""
        return False

    def groups(self) -> RuleGroups:
        """A fresh table of rule groups."""
        return RuleGroups(self.loaded.rules, self.encoded, self.classes, self.prefilter.classes, self.policy)


def load_rule_set(config: EngineConfig) -> RuleSet:
    """Load what a run asks for. Raises `flowshunt.errors.InputError`."""
    settings = load_settings(config)
    loaded = load_rules(config.rules or settings.rule_files, settings.variables, settings.classification)
    encoded = encode(loaded.rules)
    return RuleSet(
        settings,
        loaded,
        encoded,
        HeaderClasses(loaded.rules),
        Prefilter(loaded.rules, encoded.patterns),
        BypassPolicy(config.bypass, settings.bypass_action),
        loaded.datasets,
    )
