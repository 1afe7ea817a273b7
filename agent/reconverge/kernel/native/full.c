/* Makes room on a node that is full: `kernel/table/lookup.py`, for limits that C supports.
 *
 * Theory of operation.
 *
 * A node gets full when an attacker makes up keys, and then each decision about a new key looks at two keys of the
 * limit, and at two of another one. C first finds out for each of these keys whether it stays, and changes nothing that
 * matters if that is repeated. Then it drops the keys that do not stay. If it cannot find out for one of them, Python
 * begins anew; also if there is no room after all, and C cannot count a key beyond `keys_max`.
 *
 * On a node without a hub, C drops idle keys, as it does while there is room (`evict`), and keys with little use, which
 * is remembered. There, too, it checks whether Python is needed before it drops any key.
 *
 * A compressed key is read on the stack, and made an object only if it may be idle.
 */
#include "places.h"

#include "cells.h"
#include "python.h"

#define UNTOUCHED_NS SECOND_NS
#define OTHERS_PASSED 8
#define LOOKS 2

enum { NO_ROOM, ROOM, TO_PYTHON, STAYS, LEAVES };

/* Whether a cell seems to hold nothing and to have nothing to report, without bringing it up to date. */
static bool
may_be_idle(const Cell *cell, i64 now_ns)
{
    if (cell->waiters || cell->held || cell->unconfirmed || now_ns - cell->touched_ns < UNTOUCHED_NS) {
        return false;
    }
    return is_heard(cell) ? !cell->dirty : cell->reset_us == 0;
}

/* Whether a key stays, or LEAVES; TO_PYTHON if Python has to look. -1 with an error. */
static int
look_at(Store *store, Place *place, i64 now_ns)
{
    bool quiet = form_of(place) == QUIET;
    Cell scratch;
    if (form_of(place) == LONE) {
        return TO_PYTHON;
    }
    if (quiet) {
        quiet_read(place, &scratch);
    }
    if (!may_be_idle(quiet ? &scratch : place->cell, now_ns)) {
        return STAYS;
    }
    if (!store->terms.plain) {
        return TO_PYTHON;
    }
    Cell *cell = whole(store, place);
    if (cell == NULL) {
        return -1;
    }
    if (!fits(store, cell) || cell->leaving) { /* Python counts the leaving keys */
        return TO_PYTHON;
    }
    if (advance(store, cell, now_ns) < 0) {
        return -1;
    }
    measure(store, cell);
    if (meter_used(&store->terms, cell, now_ns) > 0 || cell->allowance || cell->base || cell->overdraft ||
        cell->reported_ns >= cell->shard->under_way_ns || !may_be_idle(cell, now_ns)) {
        if (quiet) {
            try_quiet(store, place);
        }
        return STAYS;
    }
    return LEAVES;
}

/* The cells at the next places of a store. */
typedef struct {
    Place *leaving[LOOKS];
    int count;
    i64 hand; /* behind them */
} Found;

/* Look at the next keys, and change nothing. TO_PYTHON if Python has to look; -1 with an error. */
static int
look_at_next(Store *store, Found *found, i64 now_ns)
{
    i64 looks = at_most(store->places, PLACES_PASSED), seen = 0;
    found->hand = store->hand;
    for (i64 look = 0; look < looks && seen < LOOKS; look++) {
        Place *place = place_at(store, found->hand);
        found->hand = (found->hand + 1) % store->places;
        if (place->key == 0) {
            continue;
        }
        seen++;
        int said = look_at(store, place, now_ns);
        if (said == LEAVES) {
            found->leaving[found->count++] = place;
        } else if (said != STAYS) {
            return said;
        }
    }
    return STAYS;
}

/* Move on to the next keys, and drop those that leave. -1 with an error. */
static int
go_on(Store *store, const Found *found, i64 now_ns)
{
    store->hand = found->hand;
    for (int at = 0; at < found->count; at++) {
        Place *place = found->leaving[at];
        Cell *cell = place->cell;
        if (is_heard(cell) && now_ns - cell->touched_ns < 2 * store->terms.idle_ns) {
            if (evicted_remember(store->evicted, key_of(place), now_ns) < 0) {
                return -1;
            }
            store->let_go_ns = now_ns;
        }
        cell->fresh = cell->urgent = false;
        cell->dirty = 0;
        store_leave(store, place);
        store->kernel->keys--;
        store->left_early++;
    }
    return 0;
}

/* Another limit that has keys, in turn; NULL if none of the next few has. Borrowed; `known` is false where Python has
 * to search for it. */
static Store *
another(Store *store, bool *known)
{
    Py_ssize_t count = PyDict_GET_SIZE(store->peers), at = 0;
    Py_ssize_t first = count == 0 ? 0 : (Py_ssize_t)((store->kernel->turn + 1) % count);
    PyObject *name, *table;
    *known = true;
    for (Py_ssize_t skipped = 0; skipped < first; skipped++) {
        PyDict_Next(store->peers, &at, &name, &table);
    }
    for (Py_ssize_t passed = 0; passed < count && passed < OTHERS_PASSED; passed++) {
        if (!PyDict_Next(store->peers, &at, &name, &table)) {
            at = 0;
            PyDict_Next(store->peers, &at, &name, &table);
        }
        if (table == store->table) {
            continue;
        }
        PyObject *cells = PyObject_GetAttr(table, python.cells);
        if (cells == NULL || !Py_IS_TYPE(cells, types.store)) {
            PyErr_Clear();
            Py_XDECREF(cells);
            *known = false;
            return NULL;
        }
        Py_DECREF(cells); /* the table keeps it */
        if (((Store *)cells)->count > 0) {
            return (Store *)cells;
        }
    }
    return NULL;
}

/* Make room on a node with a hub. */
static int
make_room_shared(Store *store, bool beyond, i64 now_ns)
{
    KernelFields *kernel = store->kernel;
    Found own = {.count = 0}, others = {.count = 0};
    Store *other = NULL;
    bool known = true, entered = false;
    int said = look_at_next(store, &own, now_ns);
    if (said != STAYS) {
        return said;
    }
    bool looks_further = kernel->keys - own.count >= kernel->keys_max;
    if (looks_further) {
        other = another(store, &known);
        entered = other != NULL && other->lock != NULL && lock_enter_if_free(other->lock);
        said = !known ? TO_PYTHON : entered ? look_at_next(other, &others, now_ns) : STAYS;
    }
    bool full = kernel->keys - own.count - others.count >= kernel->keys_max;
    if (said == STAYS && full && !beyond) {
        said = TO_PYTHON;
    }
    if (said == STAYS) {
        kernel->turn += looks_further;
        said = go_on(store, &own, now_ns) < 0 || (entered && go_on(other, &others, now_ns) < 0) ? -1 : full ? NO_ROOM : ROOM;
    }
    if (entered) {
        lock_leave(other->lock);
    }
    return said;
}

/* Drop the idle ones of the next keys; if there is none, drop one that is in use, if it may leave. -1 with an error. */
static i64
drop_some(Store *store, bool in_use, i64 now_ns)
{
    i64 gone = evict(store, now_ns, LOOKS, false, in_use);
    store->kernel->keys -= at_least(gone, 0);
    return gone;
}

/* The same for another limit, if its lock is free. */
static i64
drop_of_another(Store *other, bool in_use, i64 now_ns)
{
    if (other == NULL || !lock_enter_if_free(other->lock)) {
        return 0;
    }
    i64 gone = drop_some(other, in_use, now_ns);
    lock_leave(other->lock);
    return gone;
}

/* Make room on a node without a hub. */
static int
make_room_alone(Store *store, bool beyond, i64 now_ns)
{
    KernelFields *kernel = store->kernel;
    if (needs_time(store->lone_shard, now_ns)) {
        store->missing = TIME;
        return -1;
    }
    bool known;
    Store *other = another(store, &known);
    if (!known || !next_fit(store, 2 * LOOKS) ||
        (other != NULL && (other->lone_shard == NULL || !other->terms.plain || !next_fit(other, 2 * LOOKS)))) {
        return TO_PYTHON;
    }
    if (!beyond && !would_leave(store, now_ns, LOOKS)) {
        return TO_PYTHON;
    }
    i64 gone = drop_some(store, false, now_ns);
    if (gone >= 0 && kernel->keys >= kernel->keys_max) {
        kernel->turn++;
        gone = drop_of_another(other, false, now_ns);
        gone = gone >= 0 && kernel->keys >= kernel->keys_max ? drop_some(store, true, now_ns) : gone;
        gone = gone >= 0 && kernel->keys >= kernel->keys_max ? drop_of_another(other, true, now_ns) : gone;
    }
    return gone < 0 ? -1 : kernel->keys < kernel->keys_max ? ROOM : NO_ROOM;
}

int
make_room_in_full(Store *store, bool beyond, i64 now_ns)
{
    return store->lone_shard != NULL ? make_room_alone(store, beyond, now_ns) : make_room_shared(store, beyond, now_ns);
}
