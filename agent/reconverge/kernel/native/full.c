/* A node that has no room for another key: `kernel/table/lookup.py`, as far as all keys that are looked at stay.
 *
 * Theory of operation.
 *
 * A node is full when a stranger makes up keys, and then each of its decisions about a new key looks at two keys of the
 * limit, and at two of another one. Nearly all of them stay. So C looks first, and changes nothing that a second look
 * would change again; only if all stay does it go on to the next ones. If one may leave, Python begins anew: letting go of a
 * key takes it from the agenda, from the memory of evicted keys and from the counts.
 *
 * Of a node without a hub idle keys leave in C, as they do while there is room (`evict`). There, too, all that may need
 * Python is looked at before anything is dropped.
 *
 * A compressed key is read on the stack, and made an object only if it may be idle.
 */
#include "places.h"

#include "cells.h"
#include "python.h"

#define UNTOUCHED_NS SECOND_NS
#define OTHERS_PASSED 8
#define LOOKS 2

enum { STAY, LEFT, TO_PYTHON };

/* Whether nothing is held, nor left to be said, as far as is known without bringing the cell to the moment. */
static bool
may_be_idle(const Cell *cell, i64 now_ns)
{
    if (cell->waiters || cell->held || cell->unconfirmed || now_ns - cell->touched_ns < UNTOUCHED_NS) {
        return false;
    }
    return is_heard(cell) ? !cell->dirty : cell->reset_us == 0;
}

/* Whether a key stays; TO_PYTHON if it may leave, or Python has to look. -1 with an error. */
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
        return STAY;
    }
    if (!store->terms.plain) {
        return TO_PYTHON;
    }
    Cell *cell = whole(store, place);
    if (cell == NULL) {
        return -1;
    }
    if (!fits(store, cell)) {
        return TO_PYTHON;
    }
    if (advance(store, cell, now_ns) < 0) {
        return -1;
    }
    measure(store, cell);
    bool stays = meter_used(&store->terms, cell, now_ns) > 0 || cell->line || cell->base || cell->overdraft;
    if (stays && quiet) {
        try_quiet(store, place);
    }
    return stays ? STAY : TO_PYTHON;
}

/* Look at the next keys, which begin at `hand`; it is moved past them. */
static int
look_at_next(Store *store, i64 *hand, i64 now_ns)
{
    i64 looks = at_most(store->places, PLACES_PASSED), seen = 0;
    *hand = store->hand;
    for (i64 look = 0; look < looks && seen < LOOKS; look++) {
        Place *place = place_at(store, *hand);
        *hand = (*hand + 1) % store->places;
        if (place->key == 0) {
            continue;
        }
        seen++;
        int found = look_at(store, place, now_ns);
        if (found != STAY) {
            return found;
        }
    }
    return STAY;
}

/* Another limit that has keys, by turns; NULL if none of the next few has. Borrowed; `known` is false where Python has to
 * look for it. */
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

/* Of a node with a hub. */
static int
make_room_shared(Store *store, i64 now_ns)
{
    i64 hand, others_hand = 0;
    int found = look_at_next(store, &hand, now_ns);
    if (found != STAY) {
        return found;
    }
    bool known;
    Store *other = another(store, &known);
    if (!known) {
        return TO_PYTHON;
    }
    bool entered = other != NULL && other->lock != NULL && lock_enter_if_free(other->lock);
    if (entered) {
        found = look_at_next(other, &others_hand, now_ns);
        lock_leave(other->lock);
    }
    if (found != STAY) {
        return found;
    }
    store->hand = hand;
    store->kernel->turn++;
    if (entered) {
        other->hand = others_hand;
    }
    return STAY;
}

/* Of a node without one. */
static int
make_room_alone(Store *store, i64 now_ns)
{
    KernelFields *kernel = store->kernel;
    if (needs_time(store->lone_shard, now_ns)) {
        store->missing = TIME;
        return -1;
    }
    bool known;
    Store *other = another(store, &known);
    if (!known || !next_fit(store, LOOKS) ||
        (other != NULL && (other->lone_shard == NULL || !other->terms.plain || !next_fit(other, LOOKS)))) {
        return TO_PYTHON;
    }
    i64 gone = evict(store, now_ns, LOOKS, false);
    kernel->keys -= at_least(gone, 0);
    if (gone >= 0 && kernel->keys >= kernel->keys_max) {
        kernel->turn++;
        if (other != NULL && lock_enter_if_free(other->lock)) {
            gone = evict(other, now_ns, LOOKS, false);
            kernel->keys -= at_least(gone, 0);
            lock_leave(other->lock);
        }
    }
    return gone < 0 ? -1 : kernel->keys < kernel->keys_max ? LEFT : STAY;
}

int
make_room_in_full(Store *store, i64 now_ns)
{
    return store->lone_shard != NULL ? make_room_alone(store, now_ns) : make_room_shared(store, now_ns);
}
