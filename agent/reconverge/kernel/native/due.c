/* Chooses the cells that the next batch reports: changed ones, urgent ones, and quiet ones whose scheduled check is
 * due. The twin of `due_cells` in kernel/reporting/agenda.py. */
#include "cells.h"
#include "places.h"
#include "python.h"


#define PROMISED_SHARE 16
#define LOOKS_MAX 512
#define PASSED_MAX 1024
/* The most promises that one call looks at, and the most cells, reported meanwhile, that it skips. */

/* The cells that were found, and their largest number; `more` is set once there may be more. */
typedef struct {
    PyObject *list;
    Py_ssize_t most;
    bool more;
} Found;

/* Put a cell on the list. Takes the reference over; -1 with an error. */
static int
add(Found *found, Cell *cell)
{
    cell->taken = true;
    int done = PyList_Append(found->list, (PyObject *)cell);
    Py_DECREF(cell);
    return done;
}

static inline bool
is_full(const Found *found, Py_ssize_t most)
{
    return PyList_GET_SIZE(found->list) >= most;
}

/* Put back the cells that are not due yet. -1 with an error, also if there was one before. */
static int
put_back(Lanes *lanes, Fifo *postponed, int failed)
{
    for (Cell *cell; (cell = fifo_pop(postponed)) != NULL;) {
        failed = lanes_append(lanes, cell) < 0 ? -1 : failed;
        Py_DECREF(cell);
    }
    fifo_free(postponed);
    return failed;
}

/* Take urgent cells until there are `most`; with `ripe`, only those that are due. */
static int
take_wanted(Shard *shard, i64 now_ns, bool ripe, Py_ssize_t most, Found *found)
{
    Lanes *lanes = shard->urgent;
    Fifo postponed = {0}; /* appended after the loop, which would otherwise meet them again */
    int failed = 0, passed = 0;
    shard->early_ns = NEVER_NS;
    for (i64 left = lanes->count; left > 0 && lanes->count > 0 && !failed; left--) {
        const Cell *first = lanes_first(lanes);
        bool stale = !first->urgent || first->taken; /* reported meanwhile */
        bool later = !stale && ripe && first->early_ns > now_ns;
        if (passed == PASSED_MAX || (!stale && !later && is_full(found, most))) {
            shard->early_ns = now_ns;
            found->more = true;
            break;
        }
        Cell *cell = lanes_pop(lanes);
        if (stale) {
            passed++;
            let_rest(cell);
        } else if (later) {
            failed = fifo_append(&postponed, cell);
            shard->early_ns = at_most(shard->early_ns, cell->early_ns);
            Py_DECREF(cell);
        } else {
            failed = add(found, cell);
        }
    }
    return put_back(lanes, &postponed, failed);
}

/* Take changed cells until there are `most`. */
static int
take_stirred(Lanes *lanes, Py_ssize_t most, Found *found)
{
    int failed = 0, passed = 0;
    for (i64 left = lanes->count; left > 0 && lanes->count > 0 && !failed; left--) {
        const Cell *first = lanes_first(lanes);
        bool stale = first->dirty != lanes->number || first->taken; /* reported out of its turn */
        if (passed == PASSED_MAX || (!stale && is_full(found, most))) {
            found->more = true;
            break;
        }
        Cell *cell = lanes_pop(lanes);
        if (stale) {
            passed++;
            let_rest(cell);
        } else {
            failed = add(found, cell);
        }
    }
    return failed;
}

static int
look_again_under_lock(Cell *cell, i64 now_ns)
{
    if (!known_here(cell)) {
        PyObject *answer = PyObject_CallFunction(python.look_again, "OL", cell, (long long)now_ns);
        int now = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        return now;
    }
    Lock *lock = lock_of(cell);
    if (lock == NULL) {
        return -1;
    }
    int now = -1;
    if (lock_enter(lock)) {
        now = look_again(cell, now_ns);
        lock_leave(lock);
    } else {
        raise_reentry();
    }
    Py_DECREF(lock);
    return now;
}

/* The next cell with a promise; there must be one. Borrowed; NULL with an error. */
static Cell *
first_promised(Agenda *agenda)
{
    Group *group = agenda->groups[0];
    if (group->store == NULL) {
        return group->cell;
    }
    while (group->places[group->first] == 0) {
        group->first++;
    }
    return whole(group->store, place_at(group->store, (i64)group->places[group->first] - 1));
}

/* Take quiet cells whose promise is due, if they are worth a report. */
static int
take_promised(Shard *shard, i64 now_ns, Found *found)
{
    Agenda *agenda = shard->agenda;
    for (int looks = 0; looks < LOOKS_MAX && agenda_due_ns(agenda) <= now_ns; looks++) {
        Cell *cell = first_promised(agenda);
        if (cell == NULL) {
            return -1;
        }
        if (cell->dirty || cell->taken) {
            agenda_forget(cell);
            continue;
        }
        if (is_full(found, found->most)) {
            break;
        }
        agenda_forget(cell);
        Py_INCREF(cell);
        int now = look_again_under_lock(cell, now_ns);
        if (now < 0) {
            Py_DECREF(cell);
            return -1;
        }
        if (now > 0 && add(found, cell) < 0) {
            return -1;
        }
        if (now == 0) {
            let_rest(cell);
        }
    }
    found->more = found->more || agenda_due_ns(agenda) <= now_ns;
    return 0;
}

/* due_cells(shard, now_ns, early, begins, companions_max, cells_max): the cells to report now, each once, in the order
 * in which they were queued; and whether more are due. */
PyObject *
due_cells(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 6 || !PyObject_TypeCheck(args[0], types.shard)) {
        PyErr_SetString(PyExc_TypeError, "due_cells(shard, now_ns, early, begins, companions_max, cells_max)");
        return NULL;
    }
    Shard *shard = (Shard *)args[0];
    i64 now_ns = PyLong_AsLongLong(args[1]), companions_max = PyLong_AsLongLong(args[4]);
    Found found = {.most = PyLong_AsSsize_t(args[5])};
    int early = PyObject_IsTrue(args[2]), begins = PyObject_IsTrue(args[3]);
    if (PyErr_Occurred() || early < 0 || begins < 0 || (found.list = PyList_New(0)) == NULL) {
        return NULL;
    }
    Lanes *stirred = early ? shard->dirty : shard->round;
    Py_INCREF(shard);
    Py_INCREF(stirred); /* a signal handler may have another round begin */
    Py_ssize_t promised = early || agenda_due_ns(shard->agenda) > now_ns ? 0 : found.most / PROMISED_SHARE;
    Py_ssize_t others = found.most - promised;
    Py_ssize_t hurried = early ? found.most : (Py_ssize_t)(others - at_most(stirred->count, others / 2));
    int failed = take_wanted(shard, now_ns, !begins, hurried, &found);
    if (!failed && (!early || (PyList_GET_SIZE(found.list) > 0 && !found.more && stirred->count <= companions_max))) {
        failed = take_stirred(stirred, others, &found);
    }
    if (!failed && (promised > 0 || !found.more)) {
        failed = take_promised(shard, now_ns, &found);
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(found.list); at++) {
        ((Cell *)PyList_GET_ITEM(found.list, at))->taken = false;
    }
    Py_DECREF(stirred);
    Py_DECREF(shard);
    if (failed) {
        Py_DECREF(found.list);
        return NULL;
    }
    return Py_BuildValue("(NN)", found.list, PyBool_FromLong(found.more));
}

/* put_forward(tally, shard, waiting, lock, most): move up to `most` new keys of a limit, which `lock` guards, into
 * `waiting`, or into the shard's urgent queue; returns how many were moved. */
PyObject *
put_forward(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 5 || !PyObject_TypeCheck(args[0], types.tally) || !PyObject_TypeCheck(args[1], types.shard) ||
        !Py_IS_TYPE(args[2], types.lanes) || !Py_IS_TYPE(args[3], types.lock)) {
        PyErr_SetString(PyExc_TypeError, "put_forward(tally, shard, waiting, lock, most)");
        return NULL;
    }
    Fifo *fresh = &((Tally *)args[0])->fresh->cells;
    Shard *shard = (Shard *)args[1];
    Lanes *waiting = (Lanes *)args[2];
    Lock *lock = (Lock *)args[3];
    i64 most = PyLong_AsLongLong(args[4]), taken = 0;
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!lock_enter(lock)) {
        raise_reentry();
        return NULL;
    }
    Cell *gone[PASSED_MAX]; /* cells that have left or been answered meanwhile; released without the lock */
    int passed = 0;
    bool failed = false;
    while (fresh->count > 0 && taken < most && passed < PASSED_MAX) {
        Cell *cell = fifo_first(fresh);
        failed = cell->fresh && lanes_append(cell->urgent ? shard->urgent : waiting, cell) < 0;
        if (failed) {
            break;
        }
        fifo_pop(fresh);
        if (cell->fresh && !is_heard(cell)) {
            taken++;
            Py_DECREF(cell); /* the lane has it */
        } else {
            gone[passed++] = cell;
        }
        cell->fresh = false;
    }
    lock_leave(lock);
    while (passed > 0) {
        Py_DECREF(gone[--passed]);
    }
    return do_after_unlock(lock->kernel) < 0 || failed ? NULL : PyLong_FromLongLong(taken);
}
