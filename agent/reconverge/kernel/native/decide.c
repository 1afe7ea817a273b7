/* Decides about one key, as the methods of `Table` do. The fast path is one comparison. C has the slow path for the
 * limits that most users have; for other limits Python has it.
 *
 * Theory of operation.
 *
 * The fast path takes no lock. During a call into C neither another thread nor a signal handler runs, so comparison and
 * addition are one step. It only checks whether the limit's lock is held, because then Python may be in the middle of a
 * change of that cell; then it waits. This needs the interpreter's lock: a free-threaded Python turns it on for this
 * module (Py_MOD_GIL_USED).
 *
 * If the node uses the machine's clock, the time is read from the coarse clock, which takes a quarter as long, unless
 * the window ends within a second. So a duration in a decision is right, or too long by a tick, never too short. For a
 * refusal, whose `retry_after` a caller may wait for, C reads the exact clock. If the caller passes its own clock, both
 * kernels give the same results to the last bit.
 *
 * The slow path holds the limit's lock, and no foreign code runs meanwhile. If C lacks something (the time, a shard),
 * it notes that, gets it from Python without the lock, and decides anew. Decisions that C does not support
 * (`Terms.plain`, `fits`) are left to the Python method of the same name, on the same cell, before anything is charged.
 */
#include "decide.h"
#include "decision.h"
#include "reach.h"

#define COST_MAX ((i64)1 << 50)
/* For larger numbers Python decides, whose integers have no limit. */
#define VAIN_INTERVALS 10
/* How many exchanges pass before a used-up key is reported again, see `table/explain.py`. */

/* ------------------------------------------------------------------ what was asked */

static int
read_cost(Store *store, PyObject *cost, PyObject *kind, Asked *asked)
{
    int overflow;
    i64 small;
    if (LIKELY(kind == Py_None && PyLong_CheckExact(cost))) {
        small = PyLong_AsLongLongAndOverflow(cost, &overflow);
        if (LIKELY(small >= 0 && small <= COST_MAX / store->unit && !overflow)) {
            asked->cost = small * store->unit;
            return 0;
        }
    }
    cost = PyObject_CallMethod(store->table, "cost_of", "OO", cost, kind);
    if (cost == NULL) {
        return -1;
    }
    /* The cost has been checked, and is still in requests. */
    PyObject *unit = PyLong_FromLongLong(store->unit);
    PyObject *parts = unit == NULL ? NULL : PyNumber_Multiply(cost, unit);
    Py_XDECREF(unit);
    Py_DECREF(cost);
    if (parts == NULL) {
        return -1;
    }
    small = PyLong_AsLongLongAndOverflow(parts, &overflow);
    if (!overflow && small <= COST_MAX) {
        asked->cost = small;
        Py_DECREF(parts);
    } else {
        asked->cost = COST_MAX;
        asked->cost_object = parts;
    }
    return 0;
}

int
read_arguments(Store *store, PyObject *const *args, Py_ssize_t count, PyObject *names, Asked *asked)
{
    static const char *const known[] = {"key", "cost", "kind"};
    static const char asked_as[] = "a decision is asked for as allow(key, cost=1, kind=None), or hit() likewise";
    PyObject *given[3] = {NULL, NULL, NULL};
    if (count > 3) {
        PyErr_Format(PyExc_TypeError, "%s; it takes from 1 to 3 arguments, but %zd were given", asked_as,
                     count);
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        given[at] = args[at];
    }
    for (Py_ssize_t at = 0; names != NULL && at < PyTuple_GET_SIZE(names); at++) {
        PyObject *name = PyTuple_GET_ITEM(names, at);
        int place = 0;
        while (place < 3 && PyUnicode_CompareWithASCIIString(name, known[place]) != 0) {
            place++;
        }
        if (place == 3) {
            PyErr_Format(PyExc_TypeError, "%s; it got an unexpected keyword argument %R", asked_as, name);
            return -1;
        }
        if (given[place] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s; it got multiple values for argument %R", asked_as, name);
            return -1;
        }
        given[place] = args[count + at];
    }
    if (given[0] == NULL) {
        PyErr_Format(PyExc_TypeError, "%s; the argument 'key' is missing", asked_as);
        return -1;
    }
    asked->key = given[0];
    asked->cost_object = NULL;
    asked->shard = NULL;
    asked->cost = store->unit;
    if (given[1] == NULL && (given[2] == NULL || given[2] == Py_None)) {
        return 0;
    }
    PyObject *one = given[1] == NULL ? PyLong_FromLong(1) : Py_NewRef(given[1]);
    int done = one == NULL ? -1 : read_cost(store, one, given[2] == NULL ? Py_None : given[2], asked);
    Py_XDECREF(one);
    return done;
}

/* A store cannot decide before it serves a limit, nor after the garbage collector has cleared it. */
PyObject *
no_limit_error(void)
{
    PyErr_SetString(PyExc_RuntimeError, "this store serves no limit");
    return NULL;
}

/* ------------------------------------------------------------------ what time it is */

Tick last_tick = {-1, 0};

int
read_clock(Store *store, i64 *now_ns)
{
    if (LIKELY(store->clock == NULL)) {
        *now_ns = clock_ns(SYSTEM_CLOCK);
        return 0;
    }
    PyObject *moment = PyObject_CallNoArgs(store->clock);
    if (moment == NULL) {
        return -1;
    }
    *now_ns = PyLong_AsLongLong(moment);
    Py_DECREF(moment);
    return *now_ns == -1 && PyErr_Occurred() ? -1 : 0;
}

/* ------------------------------------------------------------------ the slow path; the lock is held */

i64
spare_beyond(const Store *store, Cell *cell, i64 cost, i64 now_ns)
{
    const Terms *terms = &store->terms;
    i64 allowance = usable_allowance(terms, cell, now_ns), reach = allowance;
    if (cell->shard->alone) {
        return meter_spare(terms, cell, allowance, now_ns);
    }
    if (UNLIKELY(cell->shard->away && terms->admits_when_away)) {
        reach = away_reach(terms, cell, cost, now_ns);
    } else {
        reach = is_heard(cell) ? policy_reach(terms, cell, allowance, cost, now_ns) : cold_reach(store, cell, cost, now_ns);
    }
    return meter_spare(terms, cell, at_least(reach, allowance), now_ns);
}

static void
set_room(Cell *cell, i64 spare)
{
    cell->room = cell->dirty || cell->comfortable || cell->shard->alone ? cell->used + spare : -1;
}

/* Request an exchange ahead of time if the hub may have something to grant. */
static int
ask_early(Store *store, Cell *cell, i64 spare, i64 now_ns)
{
    const Terms *terms = &store->terms;
    if (cell->at_hub && (cell->ask == 0 || cell->waiters || cell->asking_ns >= cell->reported_ns)) {
        return 0; /* a request that asks gets its own grant; one that was refused without asking gets an early one */
    }
    if (cell->free >= 1) {
        return request_early(store, cell, cell->reported_ns + terms->interval_min_ns);
    }
    if (spare < 1 && !(terms->kind == FIXED && fleet_used(terms, cell, now_ns) >= cell->capacity)) {
        return request_early(store, cell, cell->reported_ns + at_least(cell->back_off_ns, terms->interval_min_ns));
    }
    return 0;
}

/* Whether an exchange about a refused cost would bring nothing: see `table/explain.py`. */
static bool
waits_in_vain(const Terms *terms, const Cell *cell, i64 cost, i64 now_ns)
{
    i64 passed_ns = now_ns - cell->heard_ns;
    if (passed_ns < terms->silence_ns && is_used_up(terms, cell)) {
        return is_certain(terms, cell, cost, false, now_ns);
    }
    return cell->at_hub && !begins_with_base(terms, cell) && passed_ns < VAIN_INTERVALS * terms->interval_ns &&
           is_certain(terms, cell, cost, false, now_ns);
}

static int
commit(Store *store, Cell *cell, i64 cost, i64 spare, bool allowed, i64 now_ns)
{
    const Terms *terms = &store->terms;
    if (allowed) {
        cell->used += cost;
        spare -= cost;
        store->admitted++;
        if (terms->kind == BUCKET) {
            measure(store, cell);
            bucket_settle(terms, cell, now_ns);
            set_until(store, cell, now_ns);
        }
    } else {
        cell->arrived = at_most(cell->arrived + cost, DEMAND_MAX);
        cell->ask = at_least(cell->ask, cost);
        store->refused++;
    }
    if (cell->shard->alone) {
        set_room(cell, spare);
        return 0;
    }
    cell->touched_ns = now_ns; /* also for a mere look */
    if (!allowed && waits_in_vain(terms, cell, cost, now_ns)) {
        set_room(cell, spare);
        return 0;
    }
    if (allowed && cell->comfortable && spare >= speaks_below(cell)) {
        stay_silent(store, cell, now_ns);
        set_room(cell, spare - speaks_below(cell));
        return 0;
    }
    if (call_for_exchange(store, cell, now_ns) < 0) {
        return -1;
    }
    if (spare < cell->low_water && ask_early(store, cell, spare, now_ns) < 0) {
        return -1;
    }
    if (!is_heard(cell)) {
        if (request_early(store, cell, at_least(cell->reported_ns + cell->back_off_ns, now_ns)) < 0) {
            return -1;
        }
        set_room(cell, meter_spare(terms, cell, cold_reach(store, cell, 0, now_ns), now_ns));
    } else {
        set_room(cell, cell->urgent || spare < cell->low_water ? spare : spare - cell->low_water);
    }
    return 0;
}

/* Whether C can decide, also with the level that the cost leads to: beyond `level_max` the product of level and
 * capacity could overflow 128 bits, so Python decides. */
bool
fits_with(const Store *store, const Cell *cell, i64 cost)
{
    const Terms *terms = &store->terms;
    return fits(store, cell) && (terms->kind != BUCKET || cell->level + (i128)(cell->used + cost) * terms->window_ns <=
                                                              terms->level_max);
}

/* ------------------------------------------------------------------ all of it; the lock is held */

static int
decide_cell(Store *store, Cell *cell, i64 cost, i64 now_ns, bool *allowed)
{
    const Terms *terms = &store->terms;
    if (advance(store, cell, now_ns) < 0) {
        return -1;
    }
    i64 spare = meter_spare(terms, cell, usable_allowance(terms, cell, now_ns), now_ns);
    *allowed = cost <= spare;
    if (!*allowed && !cell->shard->alone) {
        *allowed = cost <= spare_beyond(store, cell, cost, now_ns);
    }
    return commit(store, cell, cost, spare, *allowed, now_ns);
}

/* Python has to decide, and takes the lock itself. */
static int
leave_to_python(Store *store)
{
    store->missing = PYTHON;
    return -1;
}

/* Decide about a key without an object. */
static int
decide_lone(Store *store, Place *place, i64 cost, i64 now_ns, bool *allowed, PyObject **decision)
{
    Cell scratch;
    lone_read(store, place, &scratch);
    if (!fits_with(store, &scratch, cost)) {
        return whole(store, place) == NULL ? -1 : leave_to_python(store);
    }
    if (decide_cell(store, &scratch, cost, now_ns, allowed) < 0) {
        return -1;
    }
    if (lone_keep(store, &scratch, place) < 0) {
        return -1;
    }
    if (decision != NULL) {
        *decision = explain(store, &scratch, cost, *allowed, now_ns);
    }
    return decision != NULL && *decision == NULL ? -1 : 0;
}

/* Whether C can decide about a key that finds no room: all such keys are counted in one cell that has no place. */
static bool
decides_beyond(const Store *store, const Asked *asked)
{
    PyObject *overflow = store->overflow;
    return overflow != NULL && Py_IS_TYPE(overflow, types.cell) && fits_with(store, (Cell *)overflow, asked->cost);
}

static int
decide_beyond(Store *store, const Asked *asked, i64 now_ns, bool *allowed, PyObject **decision)
{
    Cell *cell = (Cell *)store->overflow;
    if (decide_cell(store, cell, asked->cost, now_ns, allowed) < 0) {
        return -1;
    }
    store->overflowed++;
    return decision != NULL && (*decision = explain(store, cell, asked->cost, *allowed, now_ns)) == NULL ? -1 : 0;
}

/* Decide, and explain the decision if `decision` is not NULL. -1 with an error, or if something is missing; then
 * nothing has been charged. */
static int
decide(Store *store, const Asked *asked, i64 now_ns, bool *allowed, PyObject **decision)
{
    Place *place = store_place(store, asked->key);
    if (UNLIKELY(place == NULL)) {
        /* Computed before any room is made, because Python may have to begin anew. */
        bool beyond = store->kernel->keys >= store->kernel->keys_max && decides_beyond(store, asked);
        if (store_meet(store, asked->key, now_ns, asked->shard, &place, &beyond) < 0) {
            return -1;
        }
        if (place == NULL) {
            return beyond ? decide_beyond(store, asked, now_ns, allowed, decision) : leave_to_python(store);
        }
    }
    if (form_of(place) == LONE) {
        return decide_lone(store, place, asked->cost, now_ns, allowed, decision);
    }
    Cell *cell = whole(store, place);
    if (cell == NULL) {
        return -1;
    }
    if (!fits_with(store, cell, asked->cost)) {
        return leave_to_python(store);
    }
    if (decide_cell(store, cell, asked->cost, now_ns, allowed) < 0) {
        return -1;
    }
    if (decision != NULL && (*decision = explain(store, cell, asked->cost, *allowed, now_ns)) == NULL) {
        return -1;
    }
    if (store->lone_shard != NULL) {
        try_lone(store, place);
    }
    return 0;
}

/* ------------------------------------------------------------------ without the lock: what C lacks */

PyObject *
answer_in_python(Store *store, const Asked *asked, i64 now_ns, const char *method)
{
    PyObject *cost = asked->cost_object ? Py_NewRef(asked->cost_object) : PyLong_FromLongLong(asked->cost);
    PyObject *answer =
        cost == NULL ? NULL : PyObject_CallMethod(store->table, method, "OOL", asked->key, cost, (long long)now_ns);
    Py_XDECREF(cost);
    return answer;
}

/* Decide, and explain if `decision` is not NULL, as Python does. -1 with an error. */
static int
decide_in_python(Store *store, const Asked *asked, i64 now_ns, bool *allowed, PyObject **decision)
{
    PyObject *answer = answer_in_python(store, asked, now_ns, decision == NULL ? "allow_at" : "hit_at");
    if (answer == NULL) {
        return -1;
    }
    if (decision != NULL) {
        *decision = answer;
    } else {
        *allowed = answer == Py_True;
        Py_DECREF(answer);
    }
    if (store->lone_shard != NULL && !store->lock->held && PyUnicode_CheckExact(asked->key)) {
        Place *place = store_place(store, asked->key);
        if (place != NULL) {
            try_lone(store, place);
        }
    }
    return 0;
}

/* Fetch what was missing. -1 with an error. */
static int
fetch_missing(Store *store, int missing, Asked *asked, i64 now_ns)
{
    if (missing == TIME) {
        return refresh_time(store, now_ns);
    }
    PyObject *shard = PyObject_CallMethod((PyObject *)store->kernel, "shard_of", "OO", store->reported_as, asked->key);
    if (shard != NULL && !PyObject_TypeCheck(shard, types.shard)) {
        Py_CLEAR(shard);
        PyErr_SetString(PyExc_TypeError, "that is no shard");
    }
    Py_XSETREF(asked->shard, (Shard *)shard);
    return shard == NULL ? -1 : 0;
}

/* The thread is in the middle of another decision: the request is refused, and Python counts that. -1 with an error. */
static int
refuse_reentry(Store *store, bool *allowed, PyObject **decision)
{
    PyObject *answer = PyObject_CallMethod(store->table, "refuse_reentry", NULL);
    *allowed = false;
    if (answer != NULL && decision != NULL) {
        *decision = answer;
    } else {
        Py_XDECREF(answer);
    }
    return answer == NULL ? -1 : 0;
}

/* ------------------------------------------------------------------ what callers ask */

#define TRIES_MAX 8
/* The most times that missing data are fetched; two suffice unless a clock jumps again and again. */

int
decide_under_lock(Store *store, Asked *asked, i64 now_ns, bool *allowed, PyObject **decision)
{
    int failed = -1, missing = PYTHON;
    bool here = asked->cost <= store->terms.cost_max && asked->cost_object == NULL && PyUnicode_CheckExact(asked->key);
    for (int tries = 0; store->terms.plain && here && tries < TRIES_MAX; tries++) {
        Lock *lock = (Lock *)Py_NewRef((PyObject *)store->lock); /* it may be replaced meanwhile */
        if (!lock_enter(lock)) {
            Py_DECREF(lock);
            failed = refuse_reentry(store, allowed, decision);
            missing = NOTHING;
            break;
        }
        /* The thread may have waited, and the limit may have been changed or dropped meanwhile. */
        if (store->terms.plain && asked->cost <= store->terms.cost_max && lock == store->lock) {
            store->missing = NOTHING;
            failed = decide(store, asked, now_ns, allowed, decision);
            missing = failed ? store->missing : NOTHING;
        }
        lock_leave(lock);
        failed |= do_after_unlock(lock->kernel);
        Py_DECREF(lock);
        if (missing == NOTHING || missing == PYTHON) {
            break;
        }
        if (PyErr_Occurred() || fetch_missing(store, missing, asked, now_ns) < 0) {
            missing = NOTHING;
            break;
        }
        missing = PYTHON;
    }
    if (missing == PYTHON && !PyErr_Occurred()) {
        failed = decide_in_python(store, asked, now_ns, allowed, decision);
    }
    Py_CLEAR(asked->shard);
    if (failed && decision != NULL) {
        Py_CLEAR(*decision);
    }
    return failed;
}

PyObject *
store_allow(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Store *store = (Store *)object;
    Asked asked;
    i64 now_ns;
    if (UNLIKELY(ask(store, args, count, names, &asked) < 0)) {
        return NULL;
    }
    if (LIKELY(store->clock == NULL && charged_at_once(store, &asked, OWN_CLOCK, &now_ns, false) != NULL)) {
        Py_RETURN_TRUE;
    }
    if (read_clock(store, &now_ns) < 0) {
        Py_XDECREF(asked.cost_object);
        return NULL;
    }
    if (store->clock != NULL && charged_at_once(store, &asked, CALLERS_CLOCK, &now_ns, false) != NULL) {
        Py_RETURN_TRUE;
    }
    bool allowed = false;
    int failed = decide_under_lock(store, &asked, now_ns, &allowed, NULL);
    Py_XDECREF(asked.cost_object);
    return failed ? NULL : PyBool_FromLong(allowed);
}

PyObject *
store_hit(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Store *store = (Store *)object;
    Asked asked;
    i64 now_ns;
    const Place *place;
    if (UNLIKELY(ask(store, args, count, names, &asked) < 0)) {
        return NULL;
    }
    if (LIKELY(store->clock == NULL && (place = charged_at_once(store, &asked, OWN_CLOCK, &now_ns, true)) != NULL)) {
        return explain_at_once(store, place, now_ns);
    }
    if (read_clock(store, &now_ns) < 0) {
        Py_XDECREF(asked.cost_object);
        return NULL;
    }
    if (store->clock != NULL && (place = charged_at_once(store, &asked, CALLERS_CLOCK, &now_ns, true)) != NULL) {
        return explain_at_once(store, place, now_ns);
    }
    PyObject *decision = NULL;
    bool allowed = false;
    decide_under_lock(store, &asked, now_ns, &allowed, &decision);
    Py_XDECREF(asked.cost_object);
    return decision;
}

/* ------------------------------------------------------------------ several limits: `kernel/composite/joint.py` */

#define JOINT_MAX 16
/* About more limits Python decides. */

enum { UNKNOWN, ADMITS, REFUSES };

/* Whether a limit would admit a request now (within the node's own part of the limit, if it must be certain), or would
 * refuse it for certain. UNKNOWN also where Python has to decide. Charges nothing. */
static int
would_say(Store *store, const Asked *asked, bool certain, i64 now_ns)
{
    const Terms *terms = &store->terms;
    Place *place = store_place(store, asked->key);
    if (place == NULL) {
        return UNKNOWN;
    }
    Cell scratch, *cell = &scratch;
    if (form_of(place) == LONE) {
        lone_read(store, place, &scratch);
    } else if ((cell = whole(store, place)) == NULL) {
        PyErr_Clear();
        return UNKNOWN;
    }
    if (!fits_with(store, cell, asked->cost) || advance(store, cell, now_ns) < 0) {
        return UNKNOWN;
    }
    if (certain && cell->asking_ns > -NEVER_NS) {
        cell->asking_ns = now_ns; /* a request has come that asks in doubt, as one did before */
    }
    if (asked->cost <= meter_spare(terms, cell, usable_allowance(terms, cell, now_ns), now_ns)) {
        return is_heard(cell) || cell->shard->alone ? ADMITS : UNKNOWN;
    }
    if (asked->cost <= spare_beyond(store, cell, asked->cost, now_ns)) {
        return certain ? UNKNOWN : ADMITS;
    }
    return is_certain(terms, cell, asked->cost, false, now_ns) ? REFUSES : UNKNOWN;
}

/* Read the key and the cost for one limit. False if Python has to decide. */
static bool
read_joint(PyObject *limit, PyObject *key, PyObject *cost, Store **store, Asked *asked)
{
    if (!PyObject_TypeCheck(limit, types.store) || !PyLong_CheckExact(cost)) {
        return false;
    }
    *store = (Store *)limit;
    int overflow;
    asked->key = key;
    asked->cost_object = NULL;
    asked->shard = NULL;
    asked->cost = PyLong_AsLongLongAndOverflow(cost, &overflow);
    bool plain_key = PyUnicode_CheckExact(key) && PyUnicode_IS_COMPACT_ASCII(key) && PyUnicode_GET_LENGTH(key) > 0 &&
                     PyUnicode_GET_LENGTH(key) <= (*store)->key_bytes_max &&
                     *(const char *)PyUnicode_1BYTE_DATA(key) != 0;
    return plain_key && !overflow && asked->cost >= 0 && (*store)->lock != NULL && (*store)->terms.plain &&
           (*store)->unit == 1 && asked->cost <= (*store)->terms.cost_max;
}

/* Take the lock of the last of some limits, unless one before it has the same: quotas of one limit share theirs. False
 * if that would have to wait, or the lock is held. What is taken is left by `taken`, as a limit's lock may be replaced.
 */
static bool
enter_joint(Store *const *stores, Py_ssize_t last, Lock **taken)
{
    Lock *lock = stores[last]->lock;
    for (Py_ssize_t at = 0; at < last; at++) {
        if (stores[at]->lock == lock) {
            return true;
        }
    }
    if (lock->held) {
        return false;
    }
    Py_INCREF(lock);
    if (!lock_enter(lock)) {
        Py_DECREF(lock);
        return false;
    }
    taken[last] = lock;
    return lock == stores[last]->lock; /* unless no other code has run since, the limit's answer is no longer known */
}

/* Charge all limits if all admit, and set `decisions`, each a new reference; `stores` and `asked` have been read. Else
 * charge nothing. No other code runs from the first look to the last charge, as the interpreter's lock is kept. Return
 * ADMITS; REFUSES, and set `refusing` to the index of a limit that refuses for certain; UNKNOWN if Python has to
 * decide; -1 if an exception is set. */
static int
charge_jointly(Store *const *stores, const Asked *asked, Py_ssize_t size, bool certain, PyObject **decisions,
               Py_ssize_t *refusing)
{
    i64 now_ns;
    if (read_clock(stores[0], &now_ns) < 0) {
        return -1;
    }
    Lock *taken[JOINT_MAX] = {NULL};
    int says = ADMITS;
    for (Py_ssize_t at = 0; says == ADMITS && at < size; at++) {
        says = stores[at]->kernel == stores[0]->kernel && enter_joint(stores, at, taken) ? ADMITS : UNKNOWN;
    }
    bool looks = says == ADMITS;
    for (Py_ssize_t at = 0; looks && says != REFUSES && at < size; at++) {
        stores[at]->missing = NOTHING;
        int one = would_say(stores[at], &asked[at], certain, now_ns);
        says = one == ADMITS ? says : one;
        *refusing = at;
    }
    int failed = 0;
    for (Py_ssize_t at = 0; says == ADMITS && !failed && at < size; at++) {
        bool allowed = false;
        failed = decide(stores[at], &asked[at], now_ns, &allowed, &decisions[at]);
    }
    for (Py_ssize_t at = 0; at < size; at++) {
        if (taken[at] != NULL) {
            lock_leave(taken[at]);
            Py_DECREF(taken[at]);
        }
    }
    if (do_after_unlock(stores[0]->kernel) < 0 || failed) {
        for (Py_ssize_t at = 0; at < size; at++) {
            Py_CLEAR(decisions[at]);
        }
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_RuntimeError, "a limit has admitted a request and not charged it");
        }
        return -1;
    }
    return says;
}

/* For each of several limits the binding decision of its quotas; `ends` has the index after each limit's last quota.
 * The decisions are consumed. */
static PyObject *
binding_of_each(PyObject **decisions, const Py_ssize_t *ends, Py_ssize_t limits)
{
    PyObject *found = PyList_New(limits);
    for (Py_ssize_t at = 0, begin = 0; at < limits; begin = ends[at++]) {
        PyObject *binding = binding_admission(decisions + begin, ends[at] - begin);
        if (found == NULL) {
            Py_DECREF(binding);
        } else {
            PyList_SET_ITEM(found, at, binding);
        }
    }
    return found;
}

/* hit_all(certain, limits, keys, costs): if all limits admit a request, charges all and returns their decisions. Else
 * charges nothing, and returns the index of a limit that refuses for certain, or None if Python has to decide, for
 * example because several quotas may refuse. A limit is a tuple of the stores of its quotas. */
PyObject *
hit_all(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t limits = count == 4 && PyList_CheckExact(args[1]) ? PyList_GET_SIZE(args[1]) : 0;
    if (limits == 0 || !PyList_CheckExact(args[2]) || PyList_GET_SIZE(args[2]) != limits ||
        !PyList_CheckExact(args[3]) || PyList_GET_SIZE(args[3]) != limits) {
        PyErr_SetString(PyExc_TypeError, "hit_all(certain, [(store, ...), ...], [key, ...], [cost, ...])");
        return NULL;
    }
    if (limits > JOINT_MAX) {
        Py_RETURN_NONE;
    }
    Store *stores[JOINT_MAX] = {NULL};
    Asked asked[JOINT_MAX];
    PyObject *decisions[JOINT_MAX] = {NULL};
    Py_ssize_t ends[JOINT_MAX], size = 0, refusing = 0;
    for (Py_ssize_t at = 0; at < limits; at++) {
        PyObject *quotas = PyList_GET_ITEM(args[1], at), *key = PyList_GET_ITEM(args[2], at);
        if (!PyTuple_CheckExact(quotas) || PyTuple_GET_SIZE(quotas) == 0 ||
            PyTuple_GET_SIZE(quotas) > JOINT_MAX - size) {
            Py_RETURN_NONE;
        }
        for (Py_ssize_t one = 0; one < PyTuple_GET_SIZE(quotas); one++, size++) {
            PyObject *cost = PyList_GET_ITEM(args[3], at);
            if (!read_joint(PyTuple_GET_ITEM(quotas, one), key, cost, &stores[size], &asked[size])) {
                Py_RETURN_NONE;
            }
        }
        ends[at] = size;
    }
    int says = charge_jointly(stores, asked, size, args[0] == Py_True, decisions, &refusing);
    if (says == ADMITS) {
        return binding_of_each(decisions, ends, limits);
    }
    if (says < 0) {
        return NULL;
    }
    return says == REFUSES && size == limits ? PyLong_FromSsize_t(refusing) : Py_NewRef(Py_None);
}
