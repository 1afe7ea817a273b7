"""Loads an agent and its limits from a file, the environment and arguments."""

from reconverge.integrations.config.loading import (
    FILE,
    VARIABLES,
    Configuration,
    LimitSettings,
    MistakeLocator,
    Settings,
    load,
)

__all__ = ["FILE", "VARIABLES", "Configuration", "LimitSettings", "MistakeLocator", "Settings", "load"]
