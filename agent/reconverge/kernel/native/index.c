/* The index of a store: finds the place of a key.
 *
 * Theory of operation.
 *
 * Keys are found through 256 segments of open addressing, which grow one at a time and by a quarter, so that no
 * decision waits for more than one small segment to be moved. An entry is the number of a place and 32 bits of the
 * key's hash; the place has all 64 of them.
 *
 *     hash      8 bits: segment | 24 bits | 32 bits: tag, and position in the segment
 *     entry     number of the place and one | tag            0 if it is empty
 *
 * A key is identified by the 64 bits of Python's hash and by the width of its characters, and its string is not looked
 * at. With a million keys none is in the processor's caches, and a decision needs the entry, the place and, to compare
 * strings, the string: three accesses to memory, one after the other. The third takes longer than the other two: 820 ns
 * with it and 370 without, where an increment in a dictionary takes 840.
 *
 * Two keys with one hash share one cell, under the name of the first: one of them is refused too early, and neither is
 * admitted too much. Among a million keys the odds of any such pair are 3 in 10^8. Python's hash (SipHash) is keyed
 * with a secret of the process, so a stranger cannot look for pairs. But Python hashes the bytes of a string as they
 * lie in memory: "ab" and "\u6261" have one hash with every secret, and a stranger could make a key that shares
 * another's cell. Hence the width. Where the secret is known (PYTHONHASHSEED is set) strings are compared (`exact`).
 *
 * A stranger that could foresee hashes could have many keys in one chain of entries. It pays for that itself: with
 * 100,000 keys under one hash, which is the default cap, a look-up of one of them takes 1.3 ms, of another key in that
 * segment 15 us, and of a key in the other 255 segments 150 ns as ever.
 */
#include "places.h"

#define SEGMENT_FIRST 8

static inline uint32_t
home_of(const Segment *segment, uint32_t tag)
{
    return (uint32_t)(((uint64_t)tag * segment->size) >> 32);
}

static inline bool
same_key(PyObject *one, PyObject *other)
{
    if (one == other) {
        return true;
    }
    Py_ssize_t length = PyUnicode_GET_LENGTH(one);
    int kind = PyUnicode_KIND(one);
    return length == PyUnicode_GET_LENGTH(other) && kind == (int)PyUnicode_KIND(other) &&
           memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other), (size_t)length * kind) == 0;
}

Py_hash_t
hash_of(const Store *store, PyObject *key)
{
    if (UNLIKELY(store->hash != NULL)) { /* a hash function of a test */
        PyObject *hash = PyObject_CallOneArg(store->hash, key);
        Py_hash_t value = hash == NULL ? -1 : PyLong_AsSsize_t(hash);
        Py_XDECREF(hash);
        return value == -1 && !PyErr_Occurred() ? -2 : value; /* as Python has it */
    }
    Py_hash_t hash = PyObject_Hash(key);
    if (LIKELY(PyUnicode_IS_ASCII(key))) {
        return hash;
    }
    /* Python hashes a string's bytes as they lie in memory: "ab" and "\u6261" have the same. So the width counts. */
    hash ^= (Py_hash_t)(0x9E3779B97F4A7C15ULL * (uint64_t)(PyUnicode_KIND(key) - 1));
    return hash == -1 ? -2 : hash;
}

static inline uint64_t *
seek(const Store *store, PyObject *key, Py_hash_t hash, Segment **segment_found)
{
    Segment *segment = (Segment *)&store->segments[(uint64_t)hash >> 56];
    *segment_found = segment;
    if (UNLIKELY(segment->size == 0)) {
        return NULL;
    }
    uint32_t tag = (uint32_t)hash, at = home_of(segment, tag);
    for (;;) {
        uint64_t entry = segment->entries[at];
        if (entry == 0) {
            return &segment->entries[at];
        }
        if ((uint32_t)entry == tag) {
            const Place *place = place_at(store, number_in(entry));
            if (place->hash == hash && (LIKELY(!store->exact) || same_key(key_of(place), key))) {
                return &segment->entries[at];
            }
        }
        if (++at == segment->size) {
            at = 0;
        }
    }
}

uint64_t *
index_seek(const Store *store, PyObject *key, Py_hash_t hash, Segment **segment)
{
    return seek(store, key, hash, segment);
}

Place *
store_place(Store *store, PyObject *key)
{
    Segment *segment;
    Py_hash_t hash = hash_of(store, key);
    if (UNLIKELY(hash == -1)) {
        PyErr_Clear();
        return NULL;
    }
    uint64_t *entry = seek(store, key, hash, &segment);
    return entry == NULL || *entry == 0 ? NULL : place_at(store, number_in(*entry));
}

void
store_fetch(Store *store, PyObject *const *keys, Py_ssize_t count)
{
    if (UNLIKELY(store->hash != NULL)) {
        return;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_hash_t hash = PyObject_Hash(keys[at]);
        const Segment *segment = &store->segments[(uint64_t)hash >> 56];
        if (segment->size > 0) {
            __builtin_prefetch(&segment->entries[home_of(segment, (uint32_t)hash)]);
        }
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_hash_t hash = PyObject_Hash(keys[at]); /* the string stores its hash */
        const Segment *segment = &store->segments[(uint64_t)hash >> 56];
        uint32_t tag = (uint32_t)hash, slot = segment->size > 0 ? home_of(segment, tag) : 0;
        /* Only within the fetched cache line; the result is a guess, which is enough to fetch memory. */
        for (int look = 0; segment->size > 0 && look < 8; look++) {
            uint64_t entry = segment->entries[slot];
            if (entry == 0) {
                break;
            }
            if ((uint32_t)entry == tag) {
                __builtin_prefetch(place_at(store, number_in(entry)), 1);
                break;
            }
            slot = slot + 1 == segment->size ? 0 : slot + 1;
        }
    }
}

static bool
grow(Segment *segment)
{
    uint32_t size = segment->size == 0 ? SEGMENT_FIRST : segment->size + segment->size / 4;
    uint64_t *entries = pages_new(size * sizeof(uint64_t)), *old = segment->entries;
    if (entries == NULL) {
        return false;
    }
    uint32_t old_size = segment->size;
    segment->entries = entries;
    segment->size = size;
    for (uint32_t from = 0; from < old_size; from++) {
        if (old[from] != 0) {
            uint32_t at = home_of(segment, (uint32_t)old[from]);
            while (entries[at] != 0) {
                at = at + 1 == size ? 0 : at + 1;
            }
            entries[at] = old[from];
        }
    }
    pages_free(old, old_size * sizeof(uint64_t));
    return true;
}

int
index_enter(Store *store, PyObject *key, Py_hash_t hash, i64 place)
{
    Segment *segment = &store->segments[(uint64_t)hash >> 56];
    if (segment->count + 1 > segment->size - segment->size / 8 && !grow(segment)) {
        return -1;
    }
    *seek(store, key, hash, &segment) = (uint64_t)(place + 1) << 32 | (uint32_t)hash;
    segment->count++;
    return 0;
}

/* Remove an entry, and move up those that follow it, so that no mark of the removed entry is needed. */
void
index_take_out(Segment *segment, uint64_t *entry)
{
    uint32_t hole = (uint32_t)(entry - segment->entries), at = hole;
    for (;;) {
        at = at + 1 == segment->size ? 0 : at + 1;
        uint64_t next = segment->entries[at];
        if (next == 0) {
            break;
        }
        uint32_t home = home_of(segment, (uint32_t)next);
        /* Whether its home is outside of what lies between the hole and itself, all taken round the end. */
        bool moves = hole <= at ? (home <= hole || home > at) : (home <= hole && home > at);
        if (moves) {
            segment->entries[hole] = next;
            hole = at;
        }
    }
    segment->entries[hole] = 0;
    segment->count--;
}

void
index_free(Store *store)
{
    for (int at = 0; at < SEGMENTS; at++) {
        pages_free(store->segments[at].entries, store->segments[at].size * sizeof(uint64_t));
    }
    memset(store->segments, 0, sizeof(store->segments));
}
