/* Answers questions about a key without charging anything: `settles` and `test` of `Table`, for the limits that C
 * decides. */
#include "decide.h"

/* Whether C may look for a request; else Python does. */
static inline bool
looks_here(const Store *store, const Asked *asked)
{
    return store->terms.plain && asked->cost <= store->terms.cost_max && asked->cost_object == NULL &&
           PyUnicode_CheckExact(asked->key);
}

/* Whether memory settles a request to one quota, the opposite of `AskGate.in_doubt`: it fits into the node's own part
 * of the limit, or its refusal is certain. Also false where Python has to decide. Charges nothing. */
static bool
settled(Store *store, const Asked *asked, i64 now_ns)
{
    const Terms *terms = &store->terms;
    Place *place = store_place(store, asked->key);
    if (place == NULL || form_of(place) == LONE) {
        return place != NULL;
    }
    Cell *cell = whole(store, place);
    if (cell == NULL || !fits_with(store, cell, asked->cost) || advance(store, cell, now_ns) < 0) {
        return false;
    }
    if (cell->asking_ns > -NEVER_NS) {
        cell->asking_ns = now_ns; /* a request has come that asks in doubt, as one did before */
    }
    if (asked->cost <= meter_spare(terms, cell, usable_allowance(terms, cell, now_ns), now_ns)) {
        return is_heard(cell) || cell->shard->alone;
    }
    return asked->cost > spare_beyond(store, cell, asked->cost, now_ns) && is_certain(terms, cell, asked->cost, false, now_ns);
}

PyObject *
store_settles(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Store *store = (Store *)object;
    Asked asked;
    i64 now_ns;
    if (ask(store, args, count, names, &asked) < 0) {
        return NULL;
    }
    bool here = looks_here(store, &asked);
    Py_XDECREF(asked.cost_object);
    if (!here) {
        Py_RETURN_FALSE;
    }
    if (read_clock(store, &now_ns) < 0) {
        return NULL;
    }
    Lock *lock = (Lock *)Py_NewRef((PyObject *)store->lock); /* it may be replaced meanwhile */
    bool known = false;
    int failed = 0;
    if (lock_enter(lock)) {
        known = store->terms.plain && lock == store->lock && settled(store, &asked, now_ns);
        lock_leave(lock);
        failed = do_after_unlock(lock->kernel);
    }
    Py_DECREF(lock);
    return failed || PyErr_Occurred() ? NULL : PyBool_FromLong(known);
}

/* Queue a key that was only read for an exchange: `take_interest` in `kernel/reporting/requests.py`. */
static int
take_interest(Store *store, Cell *cell, i64 now_ns)
{
    if (cell->shard->alone || now_ns - cell->heard_ns <= store->terms.interval_ns) {
        return 0;
    }
    if (call_for_exchange(store, cell, now_ns) < 0) {
        return -1;
    }
    return is_heard(cell) ? 0 : request_early(store, cell, now_ns);
}

/* The answer that a request would get now; NULL with an error, or without one if Python has to look. The lock is held.
 */
static PyObject *
foreseen(Store *store, const Asked *asked, i64 now_ns)
{
    Place *place = store_place(store, asked->key);
    if (place == NULL) {
        return NULL;
    }
    bool lone = form_of(place) == LONE;
    Cell scratch, *cell = &scratch;
    if (lone) {
        lone_read(store, place, &scratch);
    } else if ((cell = whole(store, place)) == NULL) {
        return NULL;
    }
    if (!fits_with(store, cell, asked->cost) || advance(store, cell, now_ns) < 0) {
        return NULL;
    }
    bool allowed = asked->cost <= spare_beyond(store, cell, asked->cost, now_ns);
    if (take_interest(store, cell, now_ns) < 0 || (lone && lone_keep(store, &scratch, place) < 0)) {
        return NULL;
    }
    return explain_uncharged(store, cell, asked->cost, allowed, now_ns);
}

PyObject *
store_test(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Store *store = (Store *)object;
    Asked asked;
    i64 now_ns;
    if (ask(store, args, count, names, &asked) < 0) {
        return NULL;
    }
    PyObject *answer = NULL;
    int failed = read_clock(store, &now_ns);
    Lock *lock = (Lock *)Py_NewRef((PyObject *)store->lock); /* it may be replaced meanwhile */
    if (!failed && looks_here(store, &asked) && lock_enter(lock)) {
        answer = looks_here(store, &asked) && lock == store->lock ? foreseen(store, &asked, now_ns) : NULL;
        lock_leave(lock);
        failed = do_after_unlock(lock->kernel);
    }
    Py_DECREF(lock);
    if (failed) {
        Py_CLEAR(answer);
    } else if (answer == NULL && !PyErr_Occurred()) {
        answer = answer_in_python(store, &asked, now_ns, "test_at");
    }
    Py_XDECREF(asked.cost_object);
    return answer;
}
