"""Errors for calls with wrong arguments; each message shows the right call.

For a misspelt argument, Python raises a TypeError that neither lists the known names nor shows where a setting belongs.
A function decorated by `with_advice` raises `InvalidSetting` instead. The decorator calls the function first, and looks
at the arguments only after Python has refused them, so a right call costs only one more frame of the stack. It is for
constructors and declarations; methods that decide are not decorated.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from reconverge.errors import HIDDEN, InvalidSetting, asked, is_secret

Decorated = TypeVar("Decorated")
Checked = TypeVar("Checked")
NAMELESS: Final = ""
"""The key, in the `advice` of `with_advice`, of the text about a value that was passed by position, but must be passed
by name."""
NUMBER: Final = "0"
"""The key of the text about a number that was passed by position; without it, the text under `NAMELESS` is used."""
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PLACED: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def with_advice(advice: Mapping[str, str] | None = None) -> Callable[[Decorated], Decorated]:
    """Returns a decorator that replaces the TypeError of a wrong call by an InvalidSetting.

    Applied to a class, the decorator wraps its `__init__`.

    Args:
        advice: the text of the error, by the name of the argument that is unknown or missing; under `NAMELESS`, the
            text for a value that must be passed by keyword, and under `NUMBER` for a number among these.
    """

    def decorate(given: Decorated) -> Decorated:
        if inspect.isclass(given):
            made: Any = given
            made.__init__ = _advising(made.__init__, advice or {})
            return given
        return cast("Decorated", _advising(cast("Callable[..., Any]", given), advice or {}))

    return decorate


class TakesArgumentsOnly:
    """The base of classes whose settings are arguments: an assignment to a setting later would change nothing."""

    def _where_to_pass(self) -> Mapping[str, str]:
        """Returns by the name of each setting the call that takes it."""
        return {}

    if not TYPE_CHECKING:  # a type checker reports each attribute that does not exist

        def __setattr__(self, name: str, value: object) -> None:
            """Raises AttributeError for the name of a setting; a method of that name can be replaced by another one."""
            where = {} if name.startswith("_") else self._where_to_pass()
            if name in where:
                own = getattr(type(self), name, None)
                has_setter = isinstance(own, property) and own.fset is not None
                if not has_setter and not (callable(own) and callable(value)):
                    raise AttributeError(
                        f"{name!r} of {type(self).__name__} cannot be assigned, as that would have no effect; "
                        f"write {where[name]}",
                        name=name,
                        obj=self,
                    )
            super().__setattr__(name, value)


@functools.cache
def taken_by(function: Callable[..., Any], call: str) -> Mapping[str, str]:
    """Returns by the name of each argument of `function` how to pass it: `call`, with "NAME" as its name."""
    return {name: call.replace("NAME", name) for name in inspect.signature(function).parameters if name != "self"}


def checked_class(name: str, value: object, kind: type[Checked], remedy: str) -> Checked:
    """Returns `value` if it is of the class `kind`, otherwise raises InvalidSetting.

    The message of the error names the argument `name`, and ends with `remedy`, a sentence of advice.
    """
    if isinstance(value, kind):
        return value
    raise InvalidSetting(name, value, f"is no {kind.__name__}; {remedy}")


def _advising(function: Callable[..., Any], advice: Mapping[str, str]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            mistake = _mistake(function, args, kwargs, advice)
            if mistake is None:  # the arguments were right, so the TypeError came from inside the function
                raise
        raise mistake

    return call


def _mistake(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], advice: Mapping[str, str]
) -> InvalidSetting | None:
    """Returns an error that describes what is wrong with the arguments; None if they fit the function's signature."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        parameters = signature.parameters
        what = function.__qualname__.removesuffix(".__init__")
        known = [name for name, each in parameters.items() if each.kind in _NAMED and name != "self"]
        placed = [name for name, each in parameters.items() if each.kind in _PLACED]
        anything = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
        unknown = [] if anything else [name for name in kwargs if name not in known]
        if unknown:
            return _of_unknown(what, unknown[0], kwargs[unknown[0]], known, advice)
        if len(args) > len(placed):
            return _of_nameless(what, args[len(placed)], [name for name in known if name not in placed], advice)
        for name in placed[: len(args)]:
            if name in kwargs:
                twice = f"is given to {what} twice, by position and by name; leave out one"
                return InvalidSetting(name, _shown(name, kwargs[name]), advice.get(name, twice))
        for name in (*placed[len(args) :], *known):
            if name not in kwargs and name not in placed[: len(args)]:
                if parameters[name].default is inspect.Parameter.empty:
                    return InvalidSetting(name, None, advice.get(name, f"is missing; write {what}({name}=...)"))
        raise
    return None


def _of_unknown(what: str, name: str, value: object, known: list[str], advice: Mapping[str, str]) -> InvalidSetting:
    meant = asked(name, known)
    problem = f"there is no such setting of {what}{meant or '; known: ' + ', '.join(known)}"
    return InvalidSetting(name, _shown(name + meant, value), advice.get(name, problem))


def _of_nameless(what: str, value: object, named: list[str], advice: Mapping[str, str]) -> InvalidSetting:
    if NUMBER in advice and isinstance(value, int | float):
        return InvalidSetting("arguments", value, advice[NUMBER])
    if not named:
        problem = advice.get(NAMELESS, f"is one value too many for {what}; leave it out")
        return InvalidSetting("arguments", _shown("", value), problem)
    shown = _shown(named[0], value)
    problem = f"stands without a name; write {what}({named[0]}=...), or another of: {', '.join(named)}"
    return InvalidSetting(named[0], shown, advice.get(NAMELESS, problem))


def _shown(name: str, value: object) -> object:
    """Returns the value, or `***` if it may hold a password: a misspelt argument may be a secret or a URL."""
    text = value if isinstance(value, str) else ""
    return HIDDEN if is_secret(name) or "@" in text else value


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Returns whether `function` accepts that many positional arguments; True if unknown, as for compiled functions."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True
