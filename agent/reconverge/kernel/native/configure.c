/* Reads the terms of a limit (its quota, window and so on) by which a store decides; `kernel/table/native.py` sets
 * them. */
#include "native.h"

/* Take a member out of the terms of a limit, a dict; -1 with an error if it is missing. */
static int
term(PyObject *terms, const char *name, i64 *value)
{
    PyObject *whole = PyDict_GetItemString(terms, name);
    if (whole == NULL) {
        PyErr_SetString(PyExc_KeyError, name);
        return -1;
    }
    *value = PyLong_AsLongLong(whole);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Read the terms of a limit that this kernel supports; -1 with an error. */
static int
read_terms(PyObject *terms, Terms *t)
{
    i64 kind, keeps_allowances, merged_only, policy, soft, small_allowances, admits_when_away;
    PyObject *cold = PyDict_GetItemString(terms, "cold_allowance");
    if (cold == NULL || term(terms, "kind", &kind) || term(terms, "keeps_allowances", &keeps_allowances) ||
        term(terms, "merged_only", &merged_only) || term(terms, "policy", &policy) || term(terms, "soft", &soft) ||
        term(terms, "small_allowances", &small_allowances) || term(terms, "admits_when_away", &admits_when_away) ||
        term(terms, "window_ns", &t->window_ns) || term(terms, "quota", &t->quota) ||
        term(terms, "capacity", &t->capacity) || term(terms, "own_part", &t->own_part) || term(terms, "nominal", &t->nominal) ||
        term(terms, "cost_max", &t->cost_max) || term(terms, "interval_ns", &t->interval_ns) ||
        term(terms, "interval_min_ns", &t->interval_min_ns) || term(terms, "withheld", &t->withheld) ||
        term(terms, "idle_ns", &t->idle_ns) || term(terms, "lease_ns", &t->lease_ns) ||
        term(terms, "lowered_ns", &t->lowered_ns) || term(terms, "lowered_from", &t->lowered_from) ||
        term(terms, "relearns_ns", &t->relearns_ns) || term(terms, "deals_shares_ns", &t->deals_shares_ns) ||
        term(terms, "silence_ns", &t->silence_ns) ||
        term(terms, "phase", &t->phase) || term(terms, "overshoot_milli", &t->overshoot_milli)) {
        return -1;
    }
    t->cold_allowance = PyFloat_AsDouble(cold);
    if (PyErr_Occurred()) {
        return -1;
    }
    t->kind = (int)kind;
    t->keeps_allowances = keeps_allowances;
    t->merged_only = merged_only;
    t->policy = (int)policy;
    t->soft = soft;
    t->small_allowances = small_allowances;
    t->admits_when_away = admits_when_away;
    /* The drain per nanosecond, and the level of a bucket times its capacity, have to fit into 128 bits. */
    t->level_max = ((i128)1 << 110) / t->capacity;
    t->plain = t->kind != BUCKET || (i128)t->quota * t->capacity <= (i128)1 << 66;
    return 0;
}

/* serve(table, lock, clock, unit, key_bytes_max, additive, tallies, shards, lone_shard, evicted, peers, terms): decide
 * for `table` from now on. `clock` is None for the machine's own; `terms` is None for a limit that has to be decided in
 * Python. */
PyObject *
store_serve(PyObject *object, PyObject *args)
{
    Store *self = (Store *)object;
    PyObject *table, *lock, *clock, *tallies, *shards, *terms, *lone_shard, *evicted, *peers;
    long long unit, key_bytes_max;
    int additive;
    if (!PyArg_ParseTuple(args, "OO!OLLpO!O!OO!O!O:serve", &table, types.lock, &lock, &clock, &unit, &key_bytes_max,
                          &additive, &PyList_Type, &tallies, &PyList_Type, &shards, &lone_shard, types.evicted,
                          &evicted, &PyDict_Type, &peers, &terms)) {
        return NULL;
    }
    PyObject *kernel = PyObject_GetAttrString(table, "kernel"), *name = PyObject_GetAttrString(table, "name");
    if (kernel != NULL && !PyObject_TypeCheck(kernel, types.kernel)) {
        Py_CLEAR(kernel);
        PyErr_SetString(PyExc_TypeError, "a table belongs to a kernel");
    }
    PyObject *reported_as = PyObject_GetAttrString(table, "reported_as");
    if (kernel == NULL || name == NULL || reported_as == NULL) {
        Py_XDECREF(kernel);
        Py_XDECREF(name);
        Py_XDECREF(reported_as);
        return NULL;
    }
    Py_XSETREF(self->kernel, (KernelFields *)kernel);
    Py_XSETREF(self->name, name);
    Py_XSETREF(self->reported_as, reported_as);
    Py_XSETREF(self->table, Py_NewRef(table));
    Py_XSETREF(self->lock, (Lock *)Py_NewRef(lock));
    Py_XSETREF(self->clock, clock == Py_None ? NULL : Py_NewRef(clock));
    Py_XSETREF(self->tallies, Py_NewRef(tallies));
    Py_XSETREF(self->shards, Py_NewRef(shards));
    Py_XSETREF(self->evicted, (Evicted *)Py_NewRef(evicted));
    Py_XSETREF(self->peers, Py_NewRef(peers));
    self->unit = unit;
    self->key_bytes_max = key_bytes_max;
    self->additive = additive;
    self->terms.plain = false;
    Py_CLEAR(self->lone_shard);
    if (terms != Py_None && read_terms(terms, &self->terms) < 0) {
        return NULL;
    }
    if (self->terms.plain && PyObject_TypeCheck(lone_shard, types.shard)) {
        self->lone_shard = (Shard *)Py_NewRef(lone_shard);
        self->lone_tally = (Tally *)PyList_GET_ITEM(tallies, 0);
    }
    Py_RETURN_NONE;
}
