/* The local form: keys of a node without a hub, which are never reported.
 *
 * Theory of operation.
 *
 * A cell as an object takes 600 bytes. Most of them are about allowances, reports and the use of other nodes, which do
 * not exist for a node that is alone. The others (use, room, a moment, and a level or the last window's count) take 32
 * bytes, which are kept in the key's place:
 *
 *     Place (48 bytes)   hash | key, form | used, room | until_ns | level or previous | marked_ns or epoch
 *
 * `allow` compares and adds right in the place. An object is made only when Python code reads the cell (`whole`), and
 * is freed when no code refers to it any more (`try_lone`). `lone_read` copies a place into a cell on the stack, so
 * that the arithmetic is that of all cells, and `lone_write` copies it back. It fails for cells that do not fit:
 * numbers beyond 32 bits, levels beyond 64, corrections that need a bucket's lowest levels, waiting requests, a reset.
 *
 * Fields that are not kept read as zero in such an object: `arrived`, the demand, and the cost asked for.
 */
#include "places.h"

#include "cells.h"
#include "python.h"

/* Whether a cell was reset so recently that the use from before the reset may still be remembered. */
static bool
is_reset_lately(const Store *store, const Cell *cell, i64 now_ns)
{
    return cell->reset_us > 0 &&
           now_ns + cell->shard->offset_ns - 1000 * cell->reset_us < 2 * store->evicted->fade_ns;
}

void
lone_read(Store *store, const Place *place, Cell *scratch)
{
    const Terms *terms = &store->terms;
    i64 now_ns = 0;
    memset(scratch, 0, sizeof(*scratch));
#define BEGIN(name, first) scratch->name = (first);
    CELL_FIELDS(BEGIN)
    scratch->key = key_of(place);
    scratch->table = store->table;
    scratch->shard = store->lone_shard;
    scratch->store = (PyObject *)store;
    scratch->lows = scratch->history = Py_None;
    scratch->allowance = scratch->base = scratch->capacity = terms->capacity;
    scratch->used = scratch->counted = place->lone.used;
    scratch->room = place->lone.room;
    scratch->until_ns = place->lone.until_ns;
    if (terms->kind == BUCKET) {
        scratch->level = place->lone.level;
        scratch->marked_ns = place->lone.marked_ns;
        /* A bucket uses windows only to measure demand, which is not needed here. */
        scratch->epoch = (i64)floor_div(scratch->marked_ns + store->lone_shard->offset_ns, terms->window_ns);
    } else {
        scratch->epoch = place->lone.marked_ns;
        scratch->previous = place->lone.level;
        scratch->opened_ns = place->lone.until_ns - terms->window_ns;
    }
}

/* Copy the results of a cell on the stack into an object. */
void
lone_assign(const Cell *scratch, Cell *cell)
{
    i64 place = cell->place;
#define ASSIGN(name, first) cell->name = scratch->name;
    CELL_FIELDS(ASSIGN)
    cell->place = place;
    cell->level = scratch->level;
}

bool
lone_write(Store *store, Cell *cell, Place *place)
{
    const Terms *terms = &store->terms;
    if (store->lone_shard == NULL || cell->shard != store->lone_shard || cell->lows != Py_None ||
        cell->history != Py_None || cell->waiters != 0 || cell->reset_us != 0 || cell->lag_ns != 0 ||
        cell->allowance != terms->capacity || cell->capacity != terms->capacity || cell->used != (int32_t)cell->used ||
        cell->room != (int32_t)cell->room) {
        return false;
    }
    if (terms->kind == BUCKET ? cell->level != (i64)cell->level
                              : cell->until_ns != cell->opened_ns + terms->window_ns) {
        return false;
    }
    measure(store, cell);
    place->lone.used = (int32_t)cell->used;
    place->lone.room = (int32_t)cell->room;
    place->lone.until_ns = cell->until_ns;
    place->lone.level = terms->kind == BUCKET ? (i64)cell->level : cell->previous;
    place->lone.marked_ns = terms->kind == BUCKET ? cell->marked_ns : cell->epoch;
    return true;
}

Cell *
whole(Store *store, Place *place)
{
    if (form_of(place) == WHOLE) {
        return place->cell;
    }
    if (form_of(place) == QUIET) {
        return unquiet(store, place);
    }
    Cell *cell = cell_new(key_of(place), store->table, store->lone_shard, store->terms.capacity, 0);
    if (cell == NULL) {
        return NULL;
    }
    Cell scratch;
    lone_read(store, place, &scratch);
    lone_assign(&scratch, cell);
    cell->place = number_of_place(store, place);
    cell->store = Py_NewRef((PyObject *)store);
    place->key = (uintptr_t)key_of(place);
    place->cell = cell;
    return cell;
}

int
lone_keep(Store *store, Cell *scratch, Place *place)
{
    if (!lone_write(store, scratch, place)) {
        Cell *cell = whole(store, place);
        if (cell == NULL) {
            return -1;
        }
        lone_assign(scratch, cell);
    }
    return 0;
}

void
try_lone(Store *store, Place *place)
{
    if (form_of(place) != WHOLE || Py_REFCNT(place->cell) != 1) {
        return;
    }
    Cell *cell = place->cell;
    if (lone_write(store, cell, place)) {
        place->key |= LONE;
        Py_DECREF(cell);
    }
}

#define LEAVES_UP_TO 2

/* The use of a cell on the stack that was brought up to date; NEVER_NS if the cell must stay. */
static i64
used_if_may_leave(const Store *store, const Cell *cell, i64 now_ns)
{
    i64 used = meter_used(&store->terms, cell, now_ns);
    bool stays = cell->waiters != 0 || used > cell->capacity / LEAVES_UP_TO || is_reset_lately(store, cell, now_ns);
    return stays ? NEVER_NS : used;
}

/* Whether there is nothing to remember about a key without an object, which is brought up to date. It may become an
 * object on the way; then the caller must ask again. `used` becomes the result of `used_if_may_leave`. -1 with an
 * error, or if the time is missing. */
static int
lone_leaves(Store *store, Place *place, i64 now_ns, bool keep, i64 *used)
{
    Cell scratch;
    lone_read(store, place, &scratch);
    if (!fits(store, &scratch)) {
        return whole(store, place) == NULL ? -1 : 0;
    }
    if (advance(store, &scratch, now_ns) < 0) {
        return -1;
    }
    measure(store, &scratch);
    *used = used_if_may_leave(store, &scratch, now_ns);
    if (!keep && *used == 0) {
        return 1;
    }
    return lone_keep(store, &scratch, place);
}

/* The same in Python, which then takes the lock itself: see `next_fit`. */
static int
leaves_in_python(Cell *cell, i64 now_ns, bool keep, i64 *used)
{
    Py_INCREF(cell);
    PyObject *answer = PyObject_CallFunction(python.leaves, "OLi", cell, (long long)now_ns, (int)keep);
    i64 left = answer == NULL ? -1 : PyLong_AsLongLong(answer);
    int gone = left >= 0 ? 0 : PyErr_Occurred() ? -1 : 1;
    if (place_of(cell) == NULL) {
        gone = gone < 0 ? gone : 0; /* another call has dropped it meanwhile */
    } else if (left >= 0) {
        *used = left;
    }
    Py_XDECREF(answer);
    Py_DECREF(cell);
    return gone;
}

/* The same for a key of any other form. */
static int
whole_leaves(Store *store, Place *place, i64 now_ns, bool keep, i64 *used)
{
    Cell *cell = whole(store, place);
    if (cell == NULL) {
        return -1;
    }
    if (!fits(store, cell)) {
        return leaves_in_python(cell, now_ns, keep, used);
    }
    if (advance(store, cell, now_ns) < 0) {
        return -1;
    }
    measure(store, cell);
    *used = used_if_may_leave(store, cell, now_ns);
    if (!keep && *used == 0) {
        return 1;
    }
    try_lone(store, place);
    return 0;
}

bool
next_fit(const Store *store, i64 most)
{
    const Terms *terms = &store->terms;
    i64 seen = 0, looks = terms->kind == BUCKET ? at_most(store->places, PLACES_PASSED * (most / 2)) : 0;
    for (i64 look = 0; look < looks && seen < most; look++) {
        const Place *place = place_at(store, (store->hand + look) % store->places);
        if (place->key == 0) {
            continue;
        }
        seen++;
        if (form_of(place) == LONE ? place->lone.level + (i128)place->lone.used * terms->window_ns > terms->level_max
                                   : !fits(store, place->cell)) {
            return false;
        }
    }
    return true;
}

/* The place after the next `most` keys, counted from the place `hand`. */
static i64
hand_behind(const Store *store, i64 hand, i64 most)
{
    i64 looks = at_most(store->places, PLACES_PASSED), seen = 0;
    for (i64 look = 0; look < looks && seen < most; look++) {
        seen += place_at(store, hand)->key != 0;
        hand = (hand + 1) % store->places;
    }
    return hand;
}

/* Whether any of the next keys, counted from the place `hand`, has no object, has used little enough, and may leave. */
static bool
one_may_leave(Store *store, i64 hand, i64 most, i64 used_most, i64 now_ns)
{
    i64 looks = at_most(store->places, PLACES_PASSED), seen = 0;
    for (i64 look = 0; look < looks && seen < most; look++) {
        const Place *place = place_at(store, (hand + look) % store->places);
        Cell scratch;
        seen += place->key != 0;
        if (place->key == 0 || form_of(place) != LONE) {
            continue;
        }
        lone_read(store, place, &scratch);
        if (fits(store, &scratch) && advance(store, &scratch, now_ns) == 0 &&
            used_if_may_leave(store, &scratch, now_ns) <= used_most) {
            return true;
        }
    }
    return false;
}

bool
would_leave(Store *store, i64 now_ns, i64 most)
{
    /* Idle keys leave first, and then one that is not; where strangers make up keys that is the usual case. */
    i64 behind = hand_behind(store, store->hand, most);
    return one_may_leave(store, behind, most, NEVER_NS - 1, now_ns) || one_may_leave(store, store->hand, most, 0, now_ns);
}

/* Drop a key and remember its use; returns how many were dropped, or -1 with an error. */
static i64
leave_in_use(Store *store, Place *place, PyObject *key, i64 now_ns)
{
    const Terms *terms = &store->terms;
    if (place->key == 0 || key_of(place) != key) {
        return 0; /* a call into Python has dropped it meanwhile */
    }
    Cell scratch, *cell = &scratch;
    if (form_of(place) == LONE) {
        lone_read(store, place, &scratch);
    } else {
        cell = place->cell;
    }
    if (used_if_may_leave(store, cell, now_ns) == NEVER_NS) {
        return 0;
    }
    int kept = terms->kind == BUCKET
                   ? evicted_keep_level(store->evicted, key, cell->level, terms->window_ns, now_ns)
                   : evicted_keep_window(store->evicted, key, cell->epoch, cell->used,
                                         terms->kind == SLIDING ? cell->previous : 0, now_ns);
    if (kept > 0) {
        store->let_go_ns = now_ns;
        store->left_early++;
        store_leave(store, place);
    } else if (cell == &scratch) {
        place->lone.room = -1; /* as in Python, where another thread may have found it */
    } else {
        cell->room = -1;
    }
    return kept;
}

i64
evict(Store *store, i64 now_ns, i64 most, bool keep, bool full)
{
    PyObject *least = NULL; /* its key, owned, so that no other one has the same address */
    Place *least_place = NULL;
    i64 least_used = NEVER_NS;
    i64 gone = 0, seen = 0, looks = at_most(store->places, PLACES_PASSED);
    for (i64 look = 0; look < looks && seen < most; look++) {
        Place *place = store_next(store);
        if (place == NULL) {
            continue;
        }
        seen++;
        /* The string of a lone key is not touched: it is in no cache, and to fetch it would take longer than the rest.
         */
        i64 used = NEVER_NS;
        int left = form_of(place) == LONE ? lone_leaves(store, place, now_ns, keep, &used) : 0;
        if (left == 0 && form_of(place) != LONE) {
            PyObject *key = Py_NewRef(key_of(place));
            left = whole_leaves(store, place, now_ns, keep, &used);
            place = left >= 0 ? store_place(store, key) : NULL; /* again, because Python code may have run */
            Py_DECREF(key);
        }
        if (left < 0) {
            Py_XDECREF(least);
            return PyErr_Occurred() ? -1 : gone;
        }
        if (left > 0 && place != NULL) {
            store_leave(store, place);
            gone++;
        } else if (full && used < least_used && place != NULL) {
            Py_XSETREF(least, Py_NewRef(key_of(place)));
            least_place = place;
            least_used = used;
        }
    }
    if (least != NULL) {
        gone = gone == 0 ? leave_in_use(store, least_place, least, now_ns) : gone;
        Py_DECREF(least);
    }
    return gone;
}

/* evict(now_ns, count, keep, full): of the next `count` keys, drop those without use, and return how many were dropped.
 * With `keep` none is dropped, but all are brought up to date and into their smaller form. With `full` one is dropped
 * and remembered if none was idle. */
PyObject *
store_evict(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "evict(now_ns, count, keep, full)");
        return NULL;
    }
    i64 now_ns = PyLong_AsLongLong(args[0]), most = PyLong_AsLongLong(args[1]);
    int keep = PyObject_IsTrue(args[2]), full = PyObject_IsTrue(args[3]);
    Store *store = (Store *)object;
    if (PyErr_Occurred() || keep < 0 || full < 0 || (store->lone_shard != NULL && needs_time(store->lone_shard, now_ns) &&
                                         refresh_time(store, now_ns) < 0)) {
        return NULL;
    }
    i64 gone = evict(store, now_ns, most, keep, full);
    return gone < 0 ? NULL : PyLong_FromLongLong(gone);
}
