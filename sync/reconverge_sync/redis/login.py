"""A login to a Redis that changes while the process runs: before each connection a function returns the present one."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError

from reconverge.hub.registry import Credentials


class ChangingLogin(CredentialProvider):
    """Asks an application's function for the user's name and the password."""

    def __init__(self, ask: Credentials) -> None:
        self._ask = ask
        self.last: tuple[str, ...] = ()
        """The user's name, if there is one, and the password that the function returned last."""

    async def get_credentials_async(self) -> Any:
        """Calls `get_credentials` in a thread beside the event loop, and returns the result."""
        return await asyncio.to_thread(self.get_credentials)

    def get_credentials(self) -> Any:
        """Returns the login that the function returns. Raises AuthenticationError if it fails or returns anything else.

        The error shows neither the function's own error, which may contain secrets, nor what it returned.
        """
        failure = ""
        try:
            said: object = self._ask()
        except Exception as error:  # noqa: BLE001  # with any error of the function there is no login
            failure = f"the function given as credentials has raised {type(error).__name__}; correct it"
        else:
            match said:
                case (str(),) | (str(), str()):
                    self.last = tuple(said)
                    return self.last
                case _:
                    pass
            failure = (
                "the function given as credentials has returned neither (USER, PASSWORD) nor (PASSWORD,);"
                " return a tuple of texts"
            )
        raise AuthenticationError(failure)  # outside of the `except`, so that no traceback shows the function's error
