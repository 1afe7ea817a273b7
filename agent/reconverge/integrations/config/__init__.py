"""An agent and its limits from a file, the environment and arguments."""

from reconverge.integrations.config.loading import (
    FILE,
    VARIABLES,
    Configuration,
    Finding,
    LimitSettings,
    Settings,
    load,
)

__all__ = ["FILE", "VARIABLES", "Configuration", "Finding", "LimitSettings", "Settings", "load"]
