"""Promises of a hub about keys: each is counted separately, however it is spelt, in its shard and namespace."""

from __future__ import annotations

from reconverge.hub.report import Totals
from reconverge.limit.limit import (
    ALGORITHMS,
    FIXED_WINDOW,
    GCRA,
    PACED,
    SLIDING_LOG,
    SLIDING_SLICES,
    SLIDING_WINDOW,
    TOKEN_BUCKET,
)
from reconverge.testing.claims.scenes.scene import INTERVAL_S, QUOTA, Scene, Voice, limit
from reconverge.testing.claims.scenes.trial import Trial, claim

CELLS_MAX = 256
"""The most cells that a node puts into one batch."""
HOSTILE_KEYS = (
    *("a", "A", "aa", "\u00e1", "a\u0301", "\u0430", "0", "00", " ", "a ", " a", "a\t", "a\n", "a\r", "a\r\n", "\r\n"),
    *("a\x00", "a\x00b", "a\x01", "\x7f", "\x1b[0m", "\u202e", "\ufeff", "日本語", "日本", "😀", "😁", "ß", "ss"),
    *("{a}", "{}", "}{", "{", "}", "a}b{c", "{0}", "{1}", ":", "a:b", "a::b", ":a", "limit:a", "a/b", "../a", "a#b"),
    *("g", "-", "meta", "nodes", "accounts", "nil", "null", "None", "true", "1e3", "1000", "-1", "nan", "+inf"),
    *("*", "?", "[a]", "\\", "\\x00", "%s", "{0.__class__}", "$HOME", "'", '"', "a';--", "*1\r\n$8\r\nFLUSHALL\r\n"),
    *("k" * 256, "k" * 255, "k" * 255 + "l", "ß" * 128, "😀" * 64),
)
"""Keys that are all different, of at most 256 bytes each; many of them look alike, or like commands and patterns."""


class KeyClaims(Trial):
    """Tests of the promises of a hub about keys."""

    @claim
    async def test_hostile_keys_do_not_collide(self, scene: Scene) -> None:
        """Keys that look alike, look like commands or patterns, or have the greatest length are counted separately."""
        assert len(HOSTILE_KEYS) == len(set(HOSTILE_KEYS))
        ada = scene.voice()
        await ada.exchanges(ada.batch(*(ada.cell(key, current=1 + at) for at, key in enumerate(HOSTILE_KEYS))))

        heard = await _currents(scene.voice(), HOSTILE_KEYS)

        assert {key: 1 + place for place, key in enumerate(HOSTILE_KEYS)} == heard

    @claim
    async def test_a_batch_may_have_256_cells(self, scene: Scene) -> None:
        """The hub merges and answers all 256 cells of a batch, in the order in which they were reported."""
        keys = tuple(f"{number:08x}" * 32 for number in range(CELLS_MAX))
        ada = scene.voice()
        answer = await ada.exchanges(ada.batch(*(ada.cell(key, current=place) for place, key in enumerate(keys))))

        assert list(range(CELLS_MAX)) == [cell.current for cell in answer.cells]
        assert dict(zip(keys, range(CELLS_MAX), strict=True)) == await _currents(scene.voice(), keys)

    @claim
    async def test_a_batch_may_have_no_cells(self, scene: Scene) -> None:
        """The hub answers a batch without cells like any other."""
        assert () == (await scene.voice().says_hello()).cells

    @claim
    async def test_large_numbers_are_exact(self, scene: Scene) -> None:
        """A quota of 10**12 is counted to the last unit."""
        most = 10**12
        huge = limit(quota=most)
        ada = scene.voice()
        await ada.reports(of=huge, need=most)
        await ada.reports(of=huge._replace(charged=most - 1), current=most - 1)

        assert most - 1 == (await scene.voice().reports(of=huge)).current
        assert {"limit": Totals(most - 1, 0)} == await scene.hub.totals()

    @claim
    async def test_keys_of_one_limit_may_have_different_quotas(self, scene: Scene) -> None:
        """A batch may declare one limit several times, with different quotas; its totals then count only once."""
        small, large = (limit(quota=quota, charged=30) for quota in (10, 1000))
        ada = scene.voice()
        answer = await ada.exchanges(ada.batch(ada.cell("a", of=small, current=5), ada.cell("b", of=large, current=25)))
        others = (limit(quota=quota) for quota in (10, 1000))
        heard = [await scene.voice().reports(key, of=of) for key, of in zip("ab", others, strict=True)]

        assert [10, 1000] == [cell.capacity for cell in answer.cells]
        assert [(10, 5), (1000, 25)] == [(cell.capacity, cell.current) for cell in heard]
        assert {"limit": Totals(30, 0)} == await scene.hub.totals()

    @claim
    async def test_a_key_keeps_its_use_when_its_quota_changes(self, scene: Scene) -> None:
        """A larger quota of a key holds once each node has reported it; earlier use still counts."""
        small, large = (limit(quota=quota) for quota in (10, 1000))
        ada, bob = scene.voice(), scene.voice()
        for voice in (ada, bob):
            await voice.reports(of=small, current=4)
        heard = [await ada.reports(of=large, current=4)]
        scene.pass_time(INTERVAL_S)
        heard += [await bob.reports(of=large, current=4), await ada.reports(of=large, current=4)]

        assert [(10, 8), (1000, 8), (1000, 8)] == [(cell.capacity, cell.current) for cell in heard]

    @claim
    async def test_limits_do_not_share_keys(self, scene: Scene) -> None:
        """The same key under another limit is another cell, even in one batch."""
        ada = scene.voice()
        limits = tuple(limit(name) for name in ("a", "b", "a.b", "a/b", "A", "a-", "-"))
        await ada.exchanges(ada.batch(*(ada.cell(of=of, current=1 + place) for place, of in enumerate(limits))))
        bob = scene.voice()

        assert list(range(1, 1 + len(limits))) == [(await bob.reports(of=of)).current for of in limits]

    @claim
    async def test_a_limit_with_another_window_is_counted_anew(self, scene: Scene) -> None:
        """A limit whose window has another length is another cell: counts of the two mean different things."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=limit(), current=30)

        assert 0 == (await bob.reports(of=limit(window_us=limit().window_us // 2))).current

    @claim
    async def test_a_limit_with_another_way_of_counting_is_counted_anew(self, scene: Scene) -> None:
        """Fixed window, sliding window, bucket and sliding log are counted in different cells, so they do not mix."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=limit(algorithm=FIXED_WINDOW), current=30)

        assert 0 == (await bob.reports(of=limit(algorithm=SLIDING_WINDOW))).current
        assert 0 == (await bob.reports(of=limit(algorithm=TOKEN_BUCKET))).current
        assert 0 == (await bob.reports(of=limit(algorithm=SLIDING_LOG))).current

    @claim
    async def test_the_names_of_a_bucket_mean_the_same_cell(self, scene: Scene) -> None:
        """All algorithms that count like a bucket use the same cell, so a change from one to another forgets nothing.

        Paced limits count in other units, so they have cells of their own.
        """
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=limit(algorithm=TOKEN_BUCKET), current=30, previous=30_000)

        assert 30_000 == (await bob.reports(of=limit(algorithm=GCRA))).previous
        for algorithm in PACED:
            assert 0 == (await bob.reports(of=limit(algorithm=algorithm))).previous

    @claim
    async def test_what_has_dates_is_the_same_cell_by_all_its_names(self, scene: Scene) -> None:
        """Sliding log and sliding slices use the same cell, so a change from one to the other forgets nothing."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=limit(algorithm=SLIDING_LOG), current=30, previous=limit().window_us)

        assert 30 == (await bob.reports(of=limit(algorithm=SLIDING_SLICES))).current

    @claim
    async def test_every_algorithm_is_known(self, scene: Scene) -> None:
        """The hub grants an allowance for every algorithm."""
        for algorithm in ALGORITHMS:
            assert 10 <= (await scene.voice().reports(of=limit(algorithm, algorithm=algorithm), need=10)).allowance

    @claim
    async def test_shards_share_nothing_but_totals(self, scene: Scene) -> None:
        """A node reports to each shard as if it were the only one. Only the totals of the shards are added up."""
        shards = scene.hub.shards
        assert 1 <= shards
        voices = [scene.voice(shard=shard) for shard in range(shards)]
        for voice in voices[1:]:
            voice.node, voice.account = voices[0].node, voices[0].account

        answers = [await voice.reports(of=limit(charged=5), current=5, need=QUOTA) for voice in voices]

        assert [5] * shards == [answer.current for answer in answers]
        assert [QUOTA] * shards == [answer.allowance for answer in answers]
        assert {"limit": Totals(5 * shards, 0)} == await scene.hub.totals()

    @claim
    async def test_namespaces_share_nothing(self, scene: Scene) -> None:
        """Two fleets with different namespaces may use the same server, and the same names for everything."""
        stranger = scene.voice(hub=scene.keep(self.make_stranger(scene.hub)))
        ada = scene.voice()
        stranger.node, stranger.account = ada.node, ada.account
        await ada.reports(of=limit(charged=30), current=30, need=QUOTA)

        answer = await stranger.reports(of=limit(charged=1), current=1, need=QUOTA)

        assert (1, QUOTA) == (answer.current, answer.allowance)
        assert {"limit": Totals(1, 0)} == await stranger.hub.totals()
        assert {"limit": Totals(30, 0)} == await scene.hub.totals()


async def _currents(voice: Voice, keys: tuple[str, ...]) -> dict[str, int]:
    answer = await voice.exchanges(voice.batch(*(voice.cell(key) for key in keys)))
    return {key: cell.current for key, cell in zip(keys, answer.cells, strict=True)}
