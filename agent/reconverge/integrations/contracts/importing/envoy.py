"""Imports contracts from a descriptor file of Envoy's rate limit service."""

# Theory of operation.
#
# To Envoy, a request has several descriptors, each a list of keys with values. For each of them Envoy looks for the one
# rule that fits best: level by level the child with the value, else a pattern that matches the value, else the child
# without a value. To reconverge, a request has a customer and other facts, the customer is on one plan, and all limits
# of the plan must admit it. The mapping:
#
#   keys             facts of a request; a limit counts `by` all keys of its descriptor
#   one of the keys  is the customer: the one that the caller names, or else the only one without a value
#   its values       customers, with limits of their own where the file has special rules for them
#   other values     plans: `tier: gold` above `user` becomes the plan tier_gold, on which customers are put
#   rate_limit       a limit of a fixed window by the clock, as Envoy counts
#   unlimited, or a  a limit that is switched off
#   leaf without it
#   0 per unit       a quota of 0, which refuses everything
#   shadow_mode      a limit in shadow
#   replaces         the replaced limit is left out of a plan if the replacing one applies wherever it would
#
# For each plan and each list of keys, the rule is found by the search that Envoy makes, with the values of the plan. So
# a rule without values is in all plans, except where a more special rule replaces it. Requests that match no rule are
# admitted, so unknown customers are on the plan `default`.
#
# A difference in behaviour becomes a remark, and a rule that cannot be expressed an error; nothing is dropped silently.

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconverge.contracts.model import CUSTOMER
from reconverge.errors import InvalidSetting, asked, shown
from reconverge.integrations.config.positions import Source
from reconverge.integrations.contracts.importing.envoy_file import ANY, UNITS, Descriptor, EnvoyFile
from reconverge.integrations.contracts.importing.imported import Imported, Names, imported
from reconverge.limit.limit import FIXED_WINDOW, QUOTA_MAX

DEFAULT: Final = "default"
EVERYTHING: Final = f"{QUOTA_MAX}/second"
PLANS_MAX: Final = 200
"""The most plans that an import makes. Each plan costs one search for each list of keys in the file."""

Values = dict[str, str]
Way = tuple[Descriptor, ...]
"""The path to a rule in a descriptor file: the descriptors from the top level down to the rule."""


def imported_from_envoy(source: Source, customer_key: str | None = None) -> Imported:
    """Returns the contracts equivalent to a descriptor file; `customer_key` is the key whose values are customers.

    Raises InvalidConfiguration, with line and field, if the file is invalid or has a rule that contracts cannot
    express; and InvalidSetting if the file does not determine which key is the customer.
    """
    file = EnvoyFile(source)
    top = file.descriptors()
    ways = _ways(top)
    if not ways:
        raise file.wrong(
            "has no descriptor with a rate limit, so there is nothing to import; name another file", ("descriptors",)
        )
    mapping = _Mapping(file, top, ways, _customer_key(ways, customer_key))
    if customer_key is None:
        file.remark(
            f"the values of {mapping.customer!r} are customers, because no other key is written without a value",
            ("descriptors",),
        )
    return imported(source.name, mapping.table(), file.remarks)


def _ways(descriptors: Sequence[Descriptor], above: Way = ()) -> list[Way]:
    """Returns the path to each rule: to each descriptor that has a rate limit or no nested descriptors.

    A rule without a rate limit admits all requests that match it.
    """
    ways: list[Way] = []
    for each in descriptors:
        way = (*above, each)
        if each.rate is not None or not each.below:
            ways.append(way)
        ways += _ways(each.below, way)
    return ways


def _customer_key(ways: Sequence[Way], named: str | None) -> str:
    keys = list(dict.fromkeys(each.key for way in ways for each in way))
    if named is not None:
        if named not in keys:
            known = ", ".join(keys)
            raise InvalidSetting(
                "customer", named, f"is not a key of the file; its keys are: {known}{asked(named, keys)}"
            )
        return named
    candidates = list(dict.fromkeys(each.key for way in ways for each in way if each.value is None)) or keys
    if len(candidates) > 1:
        problem = f"any of {', '.join(candidates)} could be the customer; name one of them"
        raise InvalidSetting("customer", None, problem)
    return candidates[0]


@dataclass(slots=True)
class _Mapping:
    file: EnvoyFile
    top: tuple[Descriptor, ...]
    ways: list[Way]
    customer: str
    """The name of the descriptor key whose values are customers."""
    plan_names: Names = field(default_factory=Names)
    limit_names: Names = field(default_factory=Names)
    facts: dict[str, str] = field(default_factory=dict[str, str])
    """For each descriptor key, the name of the fact that it becomes in the contracts."""
    plans: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    customers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    replaced: set[tuple[Descriptor, str]] = field(default_factory=set[tuple[Descriptor, str]])

    def table(self) -> dict[str, Any]:
        """Returns the contracts document that the file is converted to, as a dict. Raises InvalidConfiguration."""
        self._name_facts()
        first = dict[tuple[tuple[str, str], ...], Way]()
        for way in self.ways:
            first.setdefault(tuple(self._others(way).items()), way)
        if len(first) > PLANS_MAX:
            problem = f"makes {len(first)} plans, more than the {PLANS_MAX} allowed; name another key as the customer"
            raise self.file.wrong(problem, ("descriptors",))
        for way in sorted(first.values(), key=lambda way: bool(self._others(way))):  # the plan for all comes first
            self._add_plan(self._others(way), way)
        if DEFAULT not in self.plans:
            self.plans = {DEFAULT: {"limits": {"unlimited": {"limit": EVERYTHING, "switch": "off"}}}, **self.plans}
        self._add_customers()
        self._remark_on_replacements()
        return {"unknown": DEFAULT, "plans": self.plans, "customers": self.customers}

    def _name_facts(self) -> None:
        """Gives each key of the file the name of a fact. Raises InvalidConfiguration if two keys would get one name."""
        for way in self.ways:
            keys = [each.key for each in way]
            if len(set(keys)) < len(keys):
                raise self.file.wrong(
                    "is nested below a descriptor of the same key, but a fact has only one value; remove one of them",
                    way[-1].path,
                )
            for each in way:
                fact = CUSTOMER if each.key == self.customer else re.sub(r"\W", "_", f"{each.key}")
                fact = fact if fact.isidentifier() else f"_{fact}"
                if each.key not in self.facts:
                    if fact in self.facts.values():
                        other = next(key for key, taken in self.facts.items() if taken == fact)
                        raise self.file.wrong(
                            f"the key {each.key!r} would become the fact {fact}, as would {other!r}; rename a key",
                            each.path,
                        )
                    self.facts[each.key] = fact
                    if fact != each.key:
                        self.file.remark(f"the key {each.key!r} becomes the fact {fact}", each.path)

    def _others(self, way: Way) -> Values:
        """Returns the keys on a path that select a plan, with their values.

        The customer's key is left out, unless its value is a pattern that matches several customers.
        """
        return {
            each.key: each.value
            for each in way
            if each.value is not None and (each.key != self.customer or each.is_pattern)
        }

    def _add_plan(self, values: Values, way: Way) -> None:
        limits = self._limits(values, None)
        if not limits:  # all rules are about single customers
            return
        name = self._plan_name(values)
        self.plans[name] = _plan_with(limits)
        if values:
            meant = " and ".join(f"{key}={value}" for key, value in values.items())
            self.file.remark(
                f"{meant} becomes the plan {name}: put customers on it; each customer is on one plan", way[-1].path
            )

    def _plan_name(self, values: Values) -> str:
        return self.plan_names.of(".".join(f"{key}_{value}" for key, value in values.items())) if values else DEFAULT

    def _limits(self, values: Values, identity: str | None) -> dict[str, tuple[Way, tuple[str, ...]]]:
        """Returns the rules for requests with `values`: by limit name, the path to the rule and the facts to count by.

        With `identity`, returns the rules for that customer; with None, those of the plan.
        """
        found: dict[str, tuple[Way, tuple[str, ...]]] = {}
        for keys in dict.fromkeys(tuple(each.key for each in way) for way in self.ways):
            way = self._found(keys, values, identity)
            if way is not None:
                found[self._limit_name(way)] = (way, self._by(way))
        return self._without_replaced(found)

    def _found(self, keys: Sequence[str], values: Values, identity: str | None) -> Way | None:
        """Returns the path to the descriptor that Envoy finds for keys with these values; None if it finds none."""
        way: list[Descriptor] = []
        level = self.top
        for key in keys:
            value = identity if key == self.customer and identity is not None else values.get(key)
            here = [each for each in level if each.key == key]
            exact = [each for each in here if each.value is not None and each.value == value]
            fitting = [
                each for each in here if value is not None and each.is_pattern and _fits(value, each.value or "")
            ]
            found = next(iter([*exact, *fitting, *(each for each in here if each.value is None)]), None)
            if found is None:
                return None
            way.append(found)
            level = found.below
        return tuple(way) if way[-1].rate is not None or not way[-1].below else None

    def _limit_name(self, way: Way) -> str:
        """Returns the name of a rule's limit: the keys on its path, each with its value if this selects a plan."""
        values = self._others(way)
        return self.limit_names.of(
            ".".join(f"{each.key}_{values[each.key]}" if each.key in values else each.key for each in way)
        )

    def _by(self, way: Way) -> tuple[str, ...]:
        by = tuple(self.facts[each.key] for each in way if not each.shared)
        if not by:
            problem = "leaves no key to count by, so all requests would have one count; nest it below another key"
            raise self.file.wrong(problem, (*way[-1].path, "share_threshold"))
        return by

    def _without_replaced(self, found: dict[str, tuple[Way, tuple[str, ...]]]) -> dict[str, Any]:
        kept = dict(found)
        for way, _ in found.values():
            rate = way[-1].rate
            for name in () if rate is None else rate.replaces:
                for limit, (other, _) in found.items():
                    named = other[-1].rate
                    fits = {each.key for each in way} <= {each.key for each in other}
                    if named is not None and named.name == name and fits and limit in kept:
                        del kept[limit]
                        self.replaced.add((way[-1], name))
        return kept

    def _remark_on_replacements(self) -> None:
        for way in self.ways:
            rate = way[-1].rate
            for name in () if rate is None else rate.replaces:
                if (way[-1], name) not in self.replaced:
                    text = f"{name!r} is not replaced: no plan has both, or it also applies where this rule does not"
                    self.file.remark(text, (*way[-1].path, "rate_limit", "replaces"))

    def _add_customers(self) -> None:
        plans_of: dict[str, dict[str, tuple[Values, Way]]] = {}
        for way in self.ways:
            for each in way:
                if each.key == self.customer and each.value is not None and not each.is_pattern:
                    values = self._others(way)
                    plans_of.setdefault(each.value, {})[self._plan_name(values)] = (values, way)
        for identity, plans in plans_of.items():
            if len(plans) > 1:
                way = list(plans.values())[-1][1]
                problem = f"the customer {shown(identity)} has limits of its own in the plans {', '.join(plans)}"
                raise self.file.wrong(
                    f"{problem}, but a customer can be on one plan only; choose another key for the customer",
                    way[-1].path,
                )
            ((name, (values, _)),) = plans.items()
            self.customers[identity] = self._customer(identity, name, values)

    def _customer(self, identity: str, plan: str, values: Values) -> dict[str, Any]:
        """Returns a customer's contract: the plan `plan` with the customer's own limits, or a plan of its own.

        It gets a plan of its own if a contract with `plan` cannot express its limits.
        """
        usual, own = self._limits(values, None), self._limits(values, identity)
        said: dict[str, dict[str, Any]] = {"limits": {}, "switches": {}}
        for limit, (way, _) in own.items():
            if limit not in usual or plan not in self.plans:
                break
            if way == usual[limit][0]:
                continue
            before, after = (_said(each[-1]) for each in (usual[limit][0], way))
            if "switch" in before:  # the switch would apply to the customer as well
                break
            if "switch" in after:
                said["switches"][limit] = after.pop("switch")
            if after != before and after["limit"] != EVERYTHING:
                said["limits"][limit] = after if after != {**before, "limit": after["limit"]} else after["limit"]
        else:
            if own.keys() == usual.keys():
                return {"plan": plan, **{name: table for name, table in said.items() if table}}
        name = self._plan_name({**values, self.customer: identity})
        self.plans[name] = _plan_with(own)
        return {"plan": name}


def _plan_with(limits: dict[str, tuple[Way, tuple[str, ...]]]) -> dict[str, Any]:
    said = {
        name: _said(way[-1]) | ({} if by == (CUSTOMER,) else {"by": list(by)}) for name, (way, by) in limits.items()
    }
    return {"limits": said}


def _said(descriptor: Descriptor) -> dict[str, Any]:
    rate = descriptor.rate
    if rate is None or not rate.unit:
        return {"limit": EVERYTHING, "switch": "off"}
    said: dict[str, Any] = {"limit": f"{rate.requests}/{UNITS[rate.unit]}", "algorithm": FIXED_WINDOW}
    return {**said, "switch": "shadow"} if descriptor.shadow else said


def _fits(value: str, pattern: str) -> bool:
    """Whether a value matches a pattern. A value that is a pattern itself matches no pattern."""
    if ANY in value:
        return False
    return re.fullmatch(".*".join(map(re.escape, pattern.split(ANY))), value, re.DOTALL) is not None
