"""The base class of limiters: the methods that limits on a rate and limits on work in progress have in common."""

# The classes. A limit on a rate (`agent.limit`) is a `RateLimiter`: after a decision nothing is left to do. A limit on
# work in progress (`agent.concurrency`) is a `SlotLimiter`: admitted work has to end, so it returns a `Slot`. Neither
# class can do what the other one does, so they have different methods. A limit with several quotas has the same methods
# as one with a single quota.
#
#     from memory            allow, allow_many, hit                   test, of both kinds, charges nothing
#     of the hub, in doubt   ask, ask_blocking
#     in a queue             wait, wait_blocking
#     by an estimate         reserve, reserve_async
#     to correct             refund, reset
#     in progress            slot
#     to look                usage, usages, warm                      both kinds
#     facts                  name, limit, quotas                      both
#     to set                 change, switch, switched                 both
#     for the agent          control: see `limiter/control.py`     both
#
# `ask` and `wait` always may wait: they are coroutines, and the names of their versions for threads end in `_blocking`.
# `reserve` waits only if its argument `within` allows it: it is a function, and the name of its version for event loops
# ends in `_async`, like that of `Slot.acquire`.

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn, Self

from reconverge.arguments import TakesArgumentsOnly
from reconverge.errors import InvalidKey, InvalidSetting, shown, shown_setting
from reconverge.limiter.enforcement.switches import ON, Switch
from reconverge.runtime.process import living_agents

if TYPE_CHECKING:
    from reconverge.decision import Decision, Usage
    from reconverge.limit.limit import Limit
    from reconverge.limiter.control import LimitControl


_OF_LIMIT: Final = (
    *("algorithm", "soft", "max_debt", "costs", "parent", "policy", "max_overshoot", "cold_allowance", "scarce"),
    *("when_hub_is_away", "sync_interval", "cap", "block_after", "block_for", "lease", "quota", "window"),
)
_SETTINGS: Final = {
    **dict.fromkeys(_OF_LIMIT, "agent.limit(...) with the setting, or limiter.change(...) for another quota"),
    **dict.fromkeys(
        ("limit", "quotas"), "limiter.change('100/minute'), which counts on, or the setting in agent.limit(...)"
    ),
    "switch": "limiter.switch(...)",
}
"""The settings that users may want to assign, each with the call to write."""


class Limiter(TakesArgumentsOnly):
    """A limit, which decides from this process's memory: a `RateLimiter` or a `SlotLimiter`."""

    _elsewhere: ClassVar[Mapping[str, str]] = {}
    """Advice for errors about methods that this class lacks but another class or library has, by the method's name."""
    _declared_by: ClassVar[str] = "agent.limit('login', '100/minute')"
    """The call that makes such a limiter, for errors."""

    def __init__(self, control: LimitControl) -> None:
        self.control = control
        """The limit's methods for the agent and for guards. Applications should not use them: they may change in any
        release."""
        self._table = control.enforcement.table

    def _where_to_pass(self) -> Mapping[str, str]:
        return _SETTINGS

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles only the limiter's name. Unpickling returns the limiter of that name in the process that unpickles.

        If it has none there, unpickling returns a limiter whose use raises InvalidSetting. An error of `pickle` itself
        would end the process of a pool that unpickles, and the pool would break or wait for ever.

        Raises TypeError if no agent of this process has the limiter.
        """
        for agent in living_agents():
            if self in getattr(agent, "limiters", {}).values():
                return _of_this_process, (type(self), getattr(agent, "namespace", ""), self.name)
        problem = f"the limiter {self.name!r} cannot be pickled, as no agent of this process has it any more"
        raise TypeError(f"{problem}; keep the agent in a variable of a module")

    if not TYPE_CHECKING:  # a type checker reports each name that is missing, and each wrong argument

        def __new__(cls, *given: object, **named: object) -> Self:
            """Raises TypeError for anything but an agent's own control: only an agent makes limiters."""
            if len(given) != 1 or named or not hasattr(given[0], "enforcement"):
                wrong = [shown_setting("", each) for each in given]
                wrong += [f"{name}={shown_setting(name, value)}" for name, value in named.items()]
                raise TypeError(
                    f"{cls.__name__}({', '.join(wrong)}): an agent makes its limiters; write "
                    f"agent = Agent('redis://localhost:6379/0'), then {cls._declared_by}"
                )
            return super().__new__(cls)

        __new__.__signature__ = inspect.signature(__init__)

        def __getattr__(self, name: str) -> NoReturn:
            """Raises AttributeError. For a method of another class of limiters, the message shows what to write."""
            if name == "__signature__":  # which FastAPI reads of a dependency
                self()
            if "_missing" in vars(self):
                namespace, name = vars(self)["_missing"]
                problem = f"was pickled, and no agent with namespace={namespace!r} has it in this process"
                remedy = "declare it here first, in a module that this process imports"
                raise InvalidSetting("limiter", name, f"{problem}; {remedy}")
            hint = f": {self.name!r} {self._elsewhere[name]}" if name in self._elsewhere else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

        def __call__(self, *_: object, **__: object) -> NoReturn:
            """Raises TypeError: a limiter is no decorator. The message shows what to write around a function."""
            raise TypeError(
                f"the limiter {self.name!r} is no function, decorator or dependency itself; write limiter.hit(key), "
                "@limited(limiter) of reconverge.integrations.decorators, or Depends(limits(limiter)) in FastAPI"
            )

        def __enter__(self) -> NoReturn:
            """Raises TypeError: a `with` block names no key, and would run even if the request is refused."""
            raise TypeError(
                f"the limiter {self.name!r} cannot be used as a block; write: if limiter.allow(key): ..., or"
                " for work in progress: with limiter.slot(key) as slot: if slot: ...; a client of httpx takes"
                " LimitedTransport(limiter)"
            )

        __exit__ = __aenter__ = __aexit__ = __enter__

    @property
    def name(self) -> str:
        """Returns the limit's name."""
        return self._table.name

    @property
    def limit(self) -> Limit:
        """Returns the declared limit; the first one, if there are several quotas."""
        return self._table.limit

    @property
    def quotas(self) -> dict[str, Limit]:
        """Returns the quotas in force, by the names that the hub and `agent.stats()` use."""
        return self.control.quotas

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Returns the decision that a request would get now. Charges nothing, so `remaining` does not deduct the cost.

        Raises InvalidKey, InvalidCost, CostExceedsQuota and UnknownKind, as a request would.
        """
        return self.control.enforcement.answers.test(key, cost, kind)

    def usage(self, key: str) -> Usage:
        """Returns the use of `key` on this node and on all nodes, for the quota that has the least left."""
        return self._table.usage(key)

    def usages(self, key: str) -> dict[str, Usage]:
        """Returns the use of `key` for every quota, by the quota's name, all at the same moment."""
        return self._table.usages(key)

    def warm(self, keys: Iterable[str]) -> None:
        """Asks the hub about `keys` before their first request, so that this node has their counts by then."""
        check_keys(keys)
        self._table.warm(keys)

    @property
    def switched(self) -> Switch:
        """Returns the switch in force: the limit's or the agent's, whichever refuses less."""
        return self.control.switched

    def switch(self, to: Switch) -> None:
        """Switches the limit "on", "off" or into "shadow", from the next decision on; all waits end at once.

        A limit that is off admits all requests, and counts only how many there were. In shadow it decides and charges
        as before, but admits the requests that it would refuse: their decisions have `would_refuse`, and no request
        waits. If the agent's switch refuses less than the limit's, the agent's is in force.

        Switching replaces `limiter.allow` and `limiter.hit` by other functions. A reference to them that was kept while
        the limit was on goes on deciding as if it were on; one kept in another mode follows all later switches.

        A switch that is published for the fleet has precedence, as long as it is in force.

        Raises InvalidSetting for another word.
        """
        self.control.switch(to)

    def __repr__(self) -> str:
        limits = "; ".join(map(str, self.quotas.values()))
        switched = "" if self.switched == ON else f", switched {self.switched}"
        return f"{type(self).__name__}({self.name!r}, {limits}, policy={self.control.policy.name}{switched})"


def _of_this_process(kind: type[Limiter], namespace: str, name: str) -> Limiter:
    """Returns the limiter called `name` of an agent in this process; if there is none, one that raises when used."""
    for agent in living_agents():
        limiter: Limiter | None = getattr(agent, "limiters", {}).get(name)
        if limiter is not None and getattr(agent, "namespace", "") == namespace:
            return limiter
    missing: Limiter = object.__new__(kind)
    vars(missing)["_missing"] = namespace, name
    return missing


def check_keys(keys: object) -> None:
    """Raises InvalidKey if `keys` is a single string and no list: each of its letters would count as a key."""
    if isinstance(keys, str | bytes):
        raise InvalidKey(f"expected a list of keys, not the single key {shown(keys)}; write [{shown(keys)}]")
