"""A hub on an MQTT broker, which stores no counts: the members elect a leader that keeps the ledger for all."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from secrets import token_hex
from typing import Any, Final, TypeVar

from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.diagnosis import Diagnosis
from reconverge.hub.reading import KeyQuestion, KeyReadings
from reconverge.hub.registry import HubSettings, redacted
from reconverge.hub.report import Answer, Batch, Totals
from reconverge.runtime.log_throttle import LogThrottle
from reconverge.runtime.owner import Owned, let_go
from reconverge_sync.merge.reading import check_questions
from reconverge_sync.mqtt.calling.calling import SWAP
from reconverge_sync.mqtt.calling.calls import Call, read_adoption, read_data, read_readings, sent_questions
from reconverge_sync.mqtt.diagnose import MqttDiagnosis
from reconverge_sync.mqtt.retained.contracts import swap_call
from reconverge_sync.mqtt.retained.settings import PAYLOAD_BYTES_MAX
from reconverge_sync.mqtt.retained.state import Retained
from reconverge_sync.mqtt.session import Membership
from reconverge_sync.mqtt.url import BrokerAddress
from reconverge_sync.mqtt.usage import MqttUsage, understood

logger = logging.getLogger("reconverge")

TIMEOUT_SHARE: Final = 0.9
"""The fraction of an exchange's time after which a method fails. As this is earlier than the caller's own time limit,
the error can name the cause."""
COMPLAINT_NS: Final = 60 * SECOND_NS
"""The least nanoseconds between two log entries about ignored messages."""

HARMLESS: Final = frozenset({"late", "unasked"})
"""The reasons for which messages are ignored even in a healthy fleet, when the leader changes."""

_T = TypeVar("_T")


class MqttHub:
    """A hub on a broker of MQTT 3.1.1 or 5. `reconverge.Hub` describes its promises.

    The broker stores only the newest claim to be the leader, settings, contracts, and the mark of key hashes. One
    member, the leader, keeps the ledger and the usage in its memory, merges for all, and answers. If it is killed,
    these data are lost: another member begins with empty ones, and the nodes report again what they hold. Each object
    is a member of its own.

    Args:
        url: `mqtt://[user[:password]@]host[:port]`, or `mqtts://` for TLS. As query: `protocol` (3.1.1 or 5); `shards`
            (the number of independent parts of the keys, each with a leader of its own); `tenure` (for how many seconds
            after a claim the leader may answer, once the broker has sent that claim back); and for TLS `ssl_ca_certs`,
            `ssl_certfile`, `ssl_keyfile`, `ssl_check_hostname` and `ssl_cert_reqs`. All members must agree on shards
            and tenure.
        settings: the namespace, and the time that an exchange may take.
        clock: the clock of elections and time limits.
        hub_clock: the source of the hub's time; for tests.
        new_name: makes names for generations of a ledger.

    Raises:
        InvalidSetting: the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        settings: HubSettings,
        *,
        clock: Clock | None = None,
        hub_clock: Clock | None = None,
        new_name: Callable[[], str] = lambda: token_hex(8),
    ) -> None:
        self._address = BrokerAddress.of(url)
        self._shown = redacted(url)
        self._settings = settings
        self._clock = clock or SystemClock()
        self._hub_clock = hub_clock
        self._new_name = new_name
        self._per_loop = Owned(self._join, let_go)
        self.rejects: Counter[str] = Counter()
        """The number of messages that were ignored, by reason."""
        self._usage = MqttUsage(self._ask, shards=self._address.shards)
        self._mentioned = 0
        self._log = LogThrottle(1, within_ns=COMPLAINT_NS)

    @property
    def shards(self) -> int:
        return self._address.shards

    @property
    def at_work(self) -> bool:
        """Returns whether this hub has a member in this process, which sends claims and may answer other members."""
        return self._per_loop.thing is not None

    async def exchange(self, batch: Batch) -> Answer:
        self._mention_rejects()
        return await _only_unavailable(self.membership().exchange(batch))

    async def totals(self) -> dict[str, Totals]:
        return await _only_unavailable(self.membership().totals())

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        """Publishes settings. A broker of MQTT 3.1.1 keeps them forever, but their reader knows when they expire."""
        if len(payload) > PAYLOAD_BYTES_MAX:
            problem = f"the settings have {len(payload)} bytes, and at most {PAYLOAD_BYTES_MAX} are taken; shorten them"
            raise HubUnavailable("protocol", problem, applied=False)
        await self._at_broker(lambda retained: retained.settings.post(payload, keep_s=keep_s))

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Returns the settings published last, or None. The broker has pushed them, so no message is sent."""
        payload = (await self._retained()).settings.payload
        return None if payload is None else payload[: bytes_max + 1]

    @property
    def usage(self) -> MqttUsage:
        return self._usage

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        check_questions(questions)
        reply = await self._ask(shard, ["read_keys", *sent_questions(questions)])
        return understood(reply, lambda sent: read_readings(sent, asked=len(questions)))

    async def data(self, shard: int) -> HubData:
        return understood(await self._ask(shard, ["data"]), read_data)

    async def adopt(self, shard: int, generation: str) -> Adoption:
        return understood(await self._ask(shard, ["adopt", generation]), read_adoption)

    async def mark_keys(self, mark: str, *, keep_s: float, limit: str = "") -> str:
        """Returns the mark of keys that the broker stores; if it has none, stores `mark` for `keep_s` seconds."""
        return await self._at_broker(lambda retained: retained.marks.leave(mark, keep_s=keep_s, limit=limit))

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        """Returns the index of the contracts, or None. The broker has pushed the index, so no message is sent."""
        return (await self._retained()).index.read(bytes_max)

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        """Asks the leader to replace the index of the contracts; returns whether it did.

        Waits for an election if needed.
        """
        call = [SWAP, *swap_call(payload, over, bytes_max, keep_s)]
        return await self._ask(0, call, takes_part=True, elects=True) is True

    async def put_page(self, digest: str, payload: bytes, *, keep_s: float) -> None:
        await self._at_broker(lambda retained: retained.pages.put(digest, payload, keep_s=keep_s))

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        return await self._at_broker(lambda retained: retained.pages.get(digest, bytes_max=bytes_max))

    async def keep_pages(self, digests: Sequence[str], *, keep_s: float) -> list[str]:
        """Makes the broker keep pages for `keep_s` seconds, or up to a quarter longer; returns missing digests."""
        return await self._at_broker(lambda retained: retained.pages.keep(digests, keep_s=keep_s))

    async def _retained(self) -> Retained:
        """Returns the broker's retained messages, once all have come."""
        membership = self._per_loop.get()
        await _only_unavailable(membership.complete())
        return membership.retained

    async def _at_broker(self, work: Callable[[Retained], Awaitable[_T]]) -> _T:
        return await _only_unavailable(self._per_loop.get().at_broker(work))

    async def _ask(self, shard: int, call: Call, *, takes_part: bool = False, elects: bool = False) -> Any:
        """Sends a call to the leader of a shard, and returns its reply. Raises HubUnavailable.

        `takes_part` makes this member a candidate for leader; `elects` waits for an election, too.
        """
        membership = self.membership() if takes_part else self._per_loop.get()
        return await _only_unavailable(membership.call(shard, call, elects=elects))

    async def diagnose(self) -> Diagnosis:
        timeout_s = self._settings.timeout_s * TIMEOUT_SHARE
        return await MqttDiagnosis(
            self._address, self._settings.namespace, timeout_s=timeout_s, clock=self._clock
        ).run()

    async def close(self) -> None:
        """Ends this process's membership. If its member is the leader, it hands the ledger over to another member."""
        membership = self._per_loop.take()
        if membership is not None:
            await membership.leave()

    def membership(self) -> Membership:
        """Returns the membership of this process and event loop; makes a new one if there is none for them."""
        membership = self._per_loop.get()
        membership.take_part()
        return membership

    def _join(self) -> Membership:
        return Membership(
            self._address,
            self._settings.namespace,
            timeout_s=self._settings.timeout_s * TIMEOUT_SHARE,
            clock=self._clock,
            hub_clock=self._hub_clock,
            new_name=self._new_name,
            rejects=self.rejects,
        )

    def _mention_rejects(self) -> None:
        """Logs now and then the number of ignored messages by reason, without their content."""
        wrong = {reason: number for reason, number in self.rejects.items() if reason not in HARMLESS}
        total = sum(wrong.values())
        now_ns = self._clock.monotonic_ns()
        if total > self._mentioned and self._log.allows(now_ns):
            self._mentioned = total
            self._log.note(now_ns)
            logger.warning(
                "reconverge: this node could not use messages at %s, and ignored them; their numbers by reason: %s. "
                "Run one version of reconverge on all members, and let only them write to the topics of the namespace",
                self._shown,
                wrong,
            )

    @property
    def namespace(self) -> str:
        """Returns the namespace whose data this object reads and writes."""
        return self._settings.namespace

    def __repr__(self) -> str:
        return f"MqttHub({self._shown!r}, namespace={self._settings.namespace!r})"


async def _only_unavailable(asked: Awaitable[_T]) -> _T:
    """Awaits `asked`, and returns the result. Raises HubUnavailable in place of any other exception."""
    try:
        return await asked
    except (HubUnavailable, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001  # with any error this exchange has failed
        problem = HubUnavailable("client", type(error).__name__)
    raise problem


def open_mqtt(url: str, settings: HubSettings) -> MqttHub:
    """Returns the hub of an `mqtt://` or `mqtts://` URL. Raises InvalidSetting if the URL cannot be used."""
    return MqttHub(url, settings)
