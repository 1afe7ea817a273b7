"""Loads an agent and its limits from a file, the environment and arguments, and reloads them while they are in use."""

from __future__ import annotations

import _thread
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, cast

from reconverge.agent.agent import Agent
from reconverge.agent.environment import variables_are_read
from reconverge.errors import InvalidLimit, InvalidSetting, LimitConflict, MissingExtra, ReconvergeError, shown
from reconverge.hub.registry import Credentials
from reconverge.integrations.config.positions import InvalidConfiguration, Source
from reconverge.integrations.config.validation import in_numbers, problem_of, says, spelled_out, weightiest
from reconverge.limiter.faces.limiter import Limiter
from reconverge.runtime.locks import new_lock

try:
    from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, field_validator
    from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
except ImportError as error:
    raise MissingExtra("a file of settings", error.name or "pydantic-settings", "config") from error

logger = logging.getLogger("reconverge")

VARIABLES: Final = {
    "hub": "RECONVERGE_HUB",
    "namespace": "RECONVERGE_NAMESPACE",
    "sync_interval": "RECONVERGE_SYNC_INTERVAL",
    "min_sync_interval": "RECONVERGE_MIN_SYNC_INTERVAL",
    "max_silence": "RECONVERGE_MAX_SILENCE",
    "lease_ttl": "RECONVERGE_LEASE_TTL",
    "policy": "RECONVERGE_POLICY",
    "max_overshoot": "RECONVERGE_MAX_OVERSHOOT",
    "cold_allowance": "RECONVERGE_COLD_ALLOWANCE",
    "scarce": "RECONVERGE_SCARCE",
    "when_hub_is_away": "RECONVERGE_WHEN_HUB_IS_AWAY",
    "max_keys": "RECONVERGE_MAX_KEYS",
    "new_keys_max": "RECONVERGE_NEW_KEYS_MAX",
    "asks_max": "RECONVERGE_ASKS_MAX",
    "in_doubt": "RECONVERGE_IN_DOUBT",
    "key_bytes_max": "RECONVERGE_KEY_BYTES_MAX",
    "exchange_timeout": "RECONVERGE_EXCHANGE_TIMEOUT",
    "stop_timeout": "RECONVERGE_STOP_TIMEOUT",
    "sigterm": "RECONVERGE_SIGTERM",
    "switch": "RECONVERGE_SWITCH",
    "settings_secret": "RECONVERGE_SETTINGS_SECRET",
    "key_secret": "RECONVERGE_KEY_SECRET",
    "fallback": "RECONVERGE_FALLBACK",
    "region_share": "RECONVERGE_REGION_SHARE",
    "require_hub": "RECONVERGE_REQUIRE_HUB",
    "limits": "RECONVERGE_LIMITS",
}
"""The environment variable of each setting; RECONVERGE_LIMITS holds JSON."""
FILE: Final = "RECONVERGE_CONFIG"
"""The environment variable with the path of the file, used if the program gives no path."""
LIVE: Final = frozenset({"sync_interval", "min_sync_interval", "switch", "limits"})
"""The settings of an agent that a reload can change."""
FIXED: Final = (
    "parent",
    "policy",
    "max_overshoot",
    "cold_allowance",
    "scarce",
    "when_hub_is_away",
    "cap",
    "block_after",
    "block_for",
)
"""The settings of a limit that a reload cannot change."""
LIMITS: Final = "limits"
ARGUMENTS: Final = "arguments"
ENVIRONMENT: Final = "environment"


class LimitSettings(BaseModel):
    """The settings of one limit; they are arguments of `Agent.limit`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    limit: str
    algorithm: str | None = None
    soft: float | str | None = None
    max_debt: int | None = None
    costs: dict[str, int] | None = None
    parent: str | None = None
    policy: str | None = None
    max_overshoot: float | None = None
    cold_allowance: float | Literal["share"] | None = None
    scarce: str | None = None
    when_hub_is_away: str | None = None
    sync_interval: float | None = None
    switch: str | None = None
    cap: str | None = None
    block_after: str | None = None
    block_for: float | str | None = None

    @field_validator("limit", mode="before")
    @classmethod
    def _joined(cls, limit: Any) -> Any:
        """Joins a list of limit strings, for several quotas, to one string; returns any other value unchanged."""
        if isinstance(limit, list) and limit and all(isinstance(each, str) for each in limit):
            return "; ".join(limit)
        return limit


class Settings(BaseSettings):
    """All settings of an agent. A setting that is None has the default of `Agent`."""

    model_config = SettingsConfigDict(env_prefix="RECONVERGE_", extra="forbid", hide_input_in_errors=True)

    hub: SecretStr | None = None
    namespace: str | None = None
    sync_interval: float | None = None
    min_sync_interval: float | None = None
    max_silence: float | None = None
    lease_ttl: float | None = None
    policy: str | None = None
    max_overshoot: float | None = None
    cold_allowance: float | Literal["share"] | None = None
    scarce: str | None = None
    when_hub_is_away: str | None = None
    max_keys: int | None = None
    new_keys_max: int | None = None
    asks_max: int | None = None
    in_doubt: str | None = None
    key_bytes_max: int | None = None
    exchange_timeout: float | None = None
    stop_timeout: float | None = None
    sigterm: bool | None = None
    switch: str | None = None
    settings_secret: SecretStr | None = None
    key_secret: SecretStr | None = None
    fallback: SecretStr | None = None
    region_share: float | None = None
    require_hub: bool | None = None
    limits: dict[str, LimitSettings] = {}

    def for_agent(self) -> dict[str, Any]:
        """Returns the arguments for `Agent`, without those that are None."""
        said = {name: getattr(self, name) for name in VARIABLES if name != "limits"}
        for name in ("hub", "settings_secret", "key_secret", "fallback"):
            if isinstance(said[name], SecretStr):
                said[name] = said[name].get_secret_value()
        return {name: value for name, value in said.items() if value is not None}


class Configuration:
    """An agent made from a file, the environment and arguments, which can be reloaded when these change.

    If several of them have a setting, arguments win over the environment, and the environment over the file.
    """

    def __init__(
        self, path: Path | None, arguments: Mapping[str, Any], *, credentials: Credentials | None = None
    ) -> None:
        self._path = path
        self._arguments = dict(arguments)
        self._lock = new_lock()
        self._settings, finding = self._read()
        self.agent: Agent = _made(self._settings, finding, credentials=credentials)
        """The agent, with all limits declared."""

    def limiter(self, name: str) -> Limiter:
        """Returns the limiter of the limit `name`. Raises UnknownLimit if the agent has no such limit."""
        return self.agent.limiter(name)

    def reload(self) -> None:
        """Applies the present contents of the file and the environment: all changes, or none if one is impossible.

        Quotas change as by `RateLimiter.change`, so past use still counts. New limits are declared. Switches and sync
        intervals are set. Nothing else can change. A setting with the same value as at the last load is left alone, so
        a switch that was turned by hand stays as it is until the file has a new value for it.

        Raises:
            InvalidConfiguration: a setting is wrong or cannot change; nothing was changed.
        """
        with self._lock:
            settings, finding = self._read()
            # A throwaway agent without a server checks all settings before the first of them is applied.
            _made(settings, finding, hub="memory://", fallback=None)
            steps = self._steps(settings, finding)
            for step in steps:
                step()
            self._settings = settings

    def reload_on_sighup(self) -> None:
        """Installs a handler of SIGHUP that calls `reload` on a new thread. A mistake in the settings is only logged.

        The former handler of the signal is called as well. Raises InvalidSetting unless called in the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            here = threading.current_thread().name
            raise InvalidSetting(
                "reload_on_sighup",
                here,
                "is not the main thread, which alone receives signals; call it where the program starts",
            )
        before = signal.getsignal(signal.SIGHUP)

        def on_sighup(number: int, frame: FrameType | None) -> None:
            # The signal may have interrupted a thread that holds the locks which a reload needs.
            _thread.start_new_thread(self._reload_quietly, ())
            if callable(before):
                before(number, frame)

        signal.signal(signal.SIGHUP, on_sighup)

    def _reload_quietly(self) -> None:
        try:
            self.reload()
        except ReconvergeError as error:
            logger.error(  # noqa: TRY400  # no bug: no traceback
                "reconverge: the settings were not reloaded, and the former settings stay in force: %s", error
            )
        except Exception:
            logger.exception("reconverge: the settings were not reloaded, and the former settings stay in force")
        else:
            logger.info("reconverge: the settings were reloaded")

    def _read(self) -> tuple[Settings, MistakeLocator]:
        _read_limits_of_environment()  # raises an error that describes the mistake, unlike pydantic's
        source = None if self._path is None else Source(self._path)
        finding = MistakeLocator(source, self._arguments)
        arguments, said = (
            in_numbers(spelled_out(self._arguments)),
            spelled_out({} if source is None else source.said),
        )

        class Said(Settings):
            """All settings together: arguments win over the environment, and the environment over the file."""

            @classmethod
            def settings_customise_sources(
                cls,
                settings_cls: type[BaseSettings],
                init_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # there are none
                env_settings: PydanticBaseSettingsSource,
                dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # not read
                file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # likewise
            ) -> tuple[PydanticBaseSettingsSource, ...]:
                heard = (arguments, spelled_out(env_settings()), said)
                return tuple(InitSettingsSource(settings_cls, each) for each in heard)

        try:
            return Said(), finding
        except ValidationError as error:
            raise finding.of(error) from None
        except ValueError as error:  # an environment variable that is not JSON
            raise InvalidConfiguration(ENVIRONMENT, str(error)) from None

    def _steps(self, settings: Settings, finding: MistakeLocator) -> list[Callable[[], object]]:
        """Returns functions that give the agent these settings and cannot fail. Raises InvalidConfiguration."""
        agent, steps = self.agent, list[Callable[[], object]]()
        for name in VARIABLES:
            if name not in LIVE and getattr(settings, name) != getattr(self._settings, name):
                raise finding.that("cannot change while the agent runs; restart the process", name)
        for name in agent.limiters:
            if name in self._settings.limits and name not in settings.limits:
                raise finding.that(
                    f"the limit {name!r} is missing now, but requests may still use it; restart the process, or switch "
                    "the limit off",
                    "limits",
                )
        paces = [(each.sync_interval, each.min_sync_interval) for each in (settings, self._settings)]
        if paces[0] != paces[1]:
            with finding.when("sync_interval"):
                steps.append(agent.plan_pace(0.1 if paces[0][0] is None else paces[0][0], paces[0][1]))
        for name, limit in settings.limits.items():
            steps += self._steps_of(name, limit, finding)
        if settings.switch != self._settings.switch:
            steps.append(lambda: agent.switch(cast("Any", settings.switch or "on")))
        return steps

    def _steps_of(self, name: str, limit: LimitSettings, finding: MistakeLocator) -> list[Callable[[], object]]:
        agent = self.agent
        limiter = agent.limiters.get(name)
        if limiter is None:
            if limit.parent is not None:
                raise finding.that(
                    "a limit with a parent cannot be added to a running agent; restart the process",
                    "limits",
                    name,
                    "parent",
                )
            return [lambda: _declare(agent, name, limit)]
        before = self._settings.limits.get(name)
        if before is None:  # declared by the program
            before = LimitSettings(limit=limit.limit)
        for field in FIXED:
            if getattr(before, field) != getattr(limit, field):
                raise finding.that(
                    "cannot change while the limit is in use; restart the process", "limits", name, field
                )
        steps = list[Callable[[], object]]()
        counted = before.model_copy(update={"switch": limit.switch, "sync_interval": limit.sync_interval})
        if counted != limit or name not in self._settings.limits:
            with finding.when("limits", name):
                steps.append(
                    limiter.control.plan_change(
                        limit.limit,
                        algorithm=limit.algorithm,
                        soft=limit.soft,
                        max_debt=limit.max_debt,
                        costs=limit.costs,
                    )
                )
        if before.sync_interval != limit.sync_interval:
            with finding.when("limits", name):
                steps.append(agent.plan_pace(limit.sync_interval, limit=name))
        if before.switch != limit.switch:
            steps.append(lambda: limiter.switch(cast("Any", limit.switch or "on")))
        return steps


class MistakeLocator:
    """Finds the place of a mistake in the settings: the source, the field, and the line of a file."""

    def __init__(self, source: Source | None, arguments: Mapping[str, Any]) -> None:
        self._source = source
        self._arguments = arguments

    def that(self, problem: str, *path: str | int) -> InvalidConfiguration:
        """Returns an error about a problem with the setting at `path`, with the source, the field and the line."""
        field, top = ".".join(map(str, path)), str(path[0]) if path else ""
        if says(spelled_out(self._arguments), path):
            return InvalidConfiguration(ARGUMENTS, problem, field=field)
        in_file = self._source is not None and says(spelled_out(self._source.said), path)
        if top == LIMITS:
            if says(spelled_out(_said_by_environment()), path) or (VARIABLES[top] in os.environ and not in_file):
                return InvalidConfiguration(
                    ENVIRONMENT, problem, field=": ".join(filter(None, (VARIABLES[top], ".".join(map(str, path[1:])))))
                )
        elif VARIABLES.get(top, "") in os.environ:
            return InvalidConfiguration(ENVIRONMENT, problem, field=VARIABLES[top])
        if self._source is None:
            return InvalidConfiguration(ENVIRONMENT, problem, field=field)
        return InvalidConfiguration(self._source.name, problem, line=self._source.line_of(path), field=field)

    def of(self, error: ValidationError) -> InvalidConfiguration:
        """Returns InvalidConfiguration for the most important mistake in pydantic's `error`.

        The message shows no values of settings, which may be secrets.
        """
        first = weightiest(error.errors(include_url=False))
        path = [part for part in first["loc"] if part != "[key]"]
        known = LimitSettings.model_fields if len(path) > 1 else Settings.model_fields
        return self.that(problem_of(first, path, known=tuple(known), agents=frozenset(VARIABLES)), *path)

    def when(self, *path: str) -> _When:
        """Returns a context manager that turns errors into InvalidConfiguration about the setting at `path`."""
        return _When(self, path)


class _When:
    def __init__(self, finding: MistakeLocator, path: tuple[str, ...]) -> None:
        self._finding = finding
        self._path = path

    def __enter__(self) -> None:
        """Does nothing when the block begins; `__exit__` turns its errors into InvalidConfiguration."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, InvalidSetting):
            known = LimitSettings.model_fields if self._path[:1] == ("limits",) else Settings.model_fields
            base = self._path if self._path[:1] == ("limits",) else ()
            path = (*base, error.name) if error.name in known else self._path
            raise self._finding.that(str(error), *path) from None
        if isinstance(error, InvalidLimit | LimitConflict):
            raise self._finding.that(str(error), *self._path, "limit") from None


def load(
    path: str | os.PathLike[str] | None = None, *, credentials: Credentials | None = None, **arguments: Any
) -> Configuration:
    """Makes an agent and declares its limits from a file, the environment and `arguments`.

    Args:
        path: a TOML, YAML or JSON file; the default is the path in `RECONVERGE_CONFIG`, if it is set.
        credentials: see `Agent`; a file cannot name a function.
        arguments: settings of `Agent` (without `clock`), and `limits`; they win over the environment and the file.

    Raises:
        InvalidConfiguration: a setting is wrong; the error names the line and the field of the file.
        UnknownHub, MissingExtra: as `Agent` raises them.
    """
    path = os.environ.get(FILE) if path is None else path
    if not isinstance(path, str | os.PathLike | None):
        raise InvalidSetting("path", path, "is no path of a file; give settings by name, as in load(limits={...})")
    return Configuration(None if path is None else Path(path), arguments, credentials=credentials)


def _made(settings: Settings, finding: MistakeLocator, **instead: Any) -> Agent:
    """Returns the agent that the settings describe, with all its limits. Raises InvalidConfiguration.

    `instead` has settings of the agent that replace those in `settings`, or are added to them.
    """
    variables_are_read()
    with finding.when("hub"):
        agent = Agent(**(settings.for_agent() | instead))
    for name, limit in settings.limits.items():
        with finding.when("limits", name):
            if limit.parent is not None and limit.parent not in agent.limiters:
                raise finding.that(f"no limit {limit.parent!r} is declared above; add one", "limits", name, "parent")
            _declare(agent, name, limit)
    return agent


def _declare(agent: Agent, name: str, limit: LimitSettings) -> Limiter:
    settings = limit.model_dump(exclude={"limit", "parent"}, exclude_none=True)
    parent = None if limit.parent is None else agent.limiter(limit.parent)
    return agent.declare(name, limit.limit, parent=parent, **settings)


def _said_by_environment() -> dict[str, Any]:
    limits = _read_limits_of_environment()
    return {LIMITS: limits} if limits else {}


def _read_limits_of_environment() -> dict[str, Any]:
    """Returns the limits in RECONVERGE_LIMITS, by name. Raises InvalidConfiguration if its value cannot be read."""
    text = os.environ.get(VARIABLES[LIMITS])
    if text is None:
        return {}
    advice = """write a table by name: {"login": "100/minute"}"""
    if not text.strip():
        raise InvalidConfiguration(ENVIRONMENT, f"is empty; {advice}, or unset it", field=VARIABLES[LIMITS])
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfiguration(ENVIRONMENT, f"is not JSON: {error}; {advice}", field=VARIABLES[LIMITS]) from None
    if not isinstance(said, dict):
        raise InvalidConfiguration(
            ENVIRONMENT, f"{shown(said)} is not a table of limits; {advice}", field=VARIABLES[LIMITS]
        )
    return cast("dict[str, Any]", said)
