/* Makes cells for new keys while the node has room: `kernel/table/lookup.py`, for the limits that C decides. */
#include "places.h"

#include "cells.h"

/* Whether a key is valid by the rules of `keys.py`; if not, Python raises the error. Python also looks at keys that may
 * be the text of an object. */
static bool
is_plain(const Store *store, PyObject *key)
{
    Py_ssize_t length = PyUnicode_GET_LENGTH(key);
    if (length == 0 || length > store->key_bytes_max || PyUnicode_READ_CHAR(key, 0) == 0) {
        return false;
    }
    if (PyUnicode_READ_CHAR(key, length - 1) == '>' && PyUnicode_READ_CHAR(key, 0) == '<') {
        return false;
    }
    if (PyUnicode_IS_ASCII(key)) {
        return true;
    }
    i64 bytes = 0;
    for (Py_ssize_t at = 0; at < length; at++) {
        Py_UCS4 character = PyUnicode_READ_CHAR(key, at);
        if (Py_UNICODE_IS_SURROGATE(character)) {
            return false;
        }
        bytes += character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    }
    return bytes <= store->key_bytes_max;
}

/* With every new key of a node without a hub, look at two of the old ones. */
static int
make_room(Store *store, i64 now_ns)
{
    KernelFields *kernel = store->kernel;
    if (needs_time(store->lone_shard, now_ns)) { /* before any key leaves, as all is then done anew */
        store->missing = TIME;
        return -1;
    }
    if (!next_fit(store, 2)) {
        store->missing = PYTHON;
        return -1;
    }
    /* A new key of this limit begins without a part of its capacity, so an old key stays while there is room. */
    bool keep = store->terms.withheld > 0 && kernel->keys < kernel->keys_max;
    i64 gone = evict(store, now_ns, 2, keep, false);
    kernel->keys -= at_least(gone, 0);
    return gone < 0 ? -1 : 0;
}

/* The use with which a key of a node without a hub begins. */
typedef struct {
    i128 level;
    Window window; /* its number is -1 if nothing is remembered */
} Begins;

/* Read the use that is remembered for a key, see `kernel/evicted.py`. -1 with an error. */
static int
recall(const Store *store, PyObject *key, i64 now_ns, Begins *begins)
{
    const Terms *terms = &store->terms;
    i128 level;
    *begins = (Begins){(i128)terms->withheld * terms->window_ns, {-1, 0, 0}};
    if (terms->kind != BUCKET) {
        int kept = evicted_window_of(store->evicted, key, now_ns, &begins->window);
        begins->window.previous = terms->kind == SLIDING ? begins->window.previous : 0;
        return kept;
    }
    if (evicted_level_of(store->evicted, key, terms->window_ns, now_ns, &level) < 0) {
        return -1;
    }
    begins->level = level > begins->level ? level : begins->level;
    return 0;
}

/* A place for a key, with an object; NULL with an error. */
static Place *
begin_whole(Store *store, PyObject *key, Py_hash_t hash, Shard *shard, const Begins *begins, i64 now_ns)
{
    const Terms *terms = &store->terms;
    i64 number;
    Cell *cell = cell_new(key, store->table, shard, terms->capacity, now_ns);
    Place *place = cell == NULL ? NULL : store_enter(store, key, hash, &number);
    if (place == NULL) {
        Py_XDECREF(cell);
        return NULL;
    }
    if (terms->kind != BUCKET) {
        cell->marked_ns = 0; /* nothing drains */
    }
    if (cell->shard->alone) {
        cell->allowance = cell->base = terms->capacity;
        cell->level = begins->level;
        if (begins->window.epoch >= 0) {
            cell->epoch = begins->window.epoch;
            cell->used = cell->counted = begins->window.current;
            cell->previous = begins->window.previous;
        }
    }
    cell->doubted = !cell->shard->alone && evicted_recall(store->evicted, key, now_ns);
    cell->place = number;
    cell->store = Py_NewRef((PyObject *)store);
    place->cell = cell;
    return place;
}

/* A place for a key, without an object; NULL with an error. */
static Place *
begin_lone(Store *store, PyObject *key, Py_hash_t hash, const Begins *begins, i64 now_ns)
{
    const Terms *terms = &store->terms;
    i64 number;
    Place *place = store_enter(store, key, hash, &number);
    if (place != NULL) {
        bool bucket = terms->kind == BUCKET;
        place->key |= LONE;
        place->lone.room = -1;
        place->lone.used = (int32_t)begins->window.current;
        place->lone.level = bucket ? (i64)begins->level : begins->window.previous;
        place->lone.marked_ns = bucket ? now_ns : begins->window.epoch;
    }
    return place;
}

/* Whether another tier of this limit has the key; then Python moves it, see `table/tiers.py`. */
static bool
is_beside(const Store *store, PyObject *key)
{
    if (!has_beside(store)) {
        return false;
    }
    if (PyDict_GetItemWithError(store->homes, key) != NULL) {
        return true;
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(store->beside); at++) {
        PyObject *other = PyList_GET_ITEM(store->beside, at);
        if (other != (PyObject *)store && Py_IS_TYPE(other, types.store) && store_place((Store *)other, key) != NULL) {
            return true;
        }
    }
    return false;
}

int
store_meet(Store *store, PyObject *key, i64 now_ns, Shard *shard, Place **place, bool *beyond)
{
    KernelFields *kernel = store->kernel;
    bool counted = *beyond;
    *place = NULL;
    *beyond = false;
    if (!is_plain(store, key) || is_beside(store, key)) {
        return 0;
    }
    bool full = kernel->keys >= kernel->keys_max;
    if (full) {
        int left = make_room_in_full(store, counted, now_ns);
        if (left != 1) {
            *beyond = left == 0 && counted;
            return left < 0 ? -1 : 0;
        }
    }
    if (PyList_GET_SIZE(store->shards) == 1) {
        shard = (Shard *)PyList_GET_ITEM(store->shards, 0);
    }
    if (shard == NULL) { /* Python computes the hash that it needs */
        store->missing = SHARD;
        return -1;
    }
    bool alone = store->lone_shard != NULL;
    Py_hash_t hash = hash_of(store, key);
    if (hash == -1 || (alone && !full && make_room(store, now_ns) < 0)) {
        return -1;
    }
    Begins begins;
    if (alone && recall(store, key, now_ns, &begins) < 0) {
        return -1;
    }
    bool needs_none = alone && begins.level == (i64)begins.level && begins.window.current == (int32_t)begins.window.current;
    *place = needs_none ? begin_lone(store, key, hash, &begins, now_ns) : begin_whole(store, key, hash, shard, &begins, now_ns);
    if (*place == NULL) {
        return -1;
    }
    kernel->keys++;
    return 0;
}
