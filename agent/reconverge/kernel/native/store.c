/* The cells of one limit by key, as Python sees them: a mapping that decides. */
#include <stddef.h>
#include "places.h"

Cell *
store_find(Store *store, PyObject *key)
{
    Place *place = store_place(store, key);
    return place == NULL ? NULL : whole(store, place);
}

/* ------------------------------------------------------------------ as a mapping */

/* Where the entry of a cell is or would be, which is NULL if there is no room; -1 with an error if it is no cell. */
static int
seek_cell(Store *store, PyObject *value, Py_hash_t *hash, uint64_t **entry, Segment **segment)
{
    if (!Py_IS_TYPE(value, types.cell)) {
        PyErr_SetString(PyExc_TypeError, "only a cell can be put or dropped");
        return -1;
    }
    PyObject *key = ((Cell *)value)->key;
    *hash = hash_of(store, key);
    if (*hash == -1) {
        return -1;
    }
    *entry = index_seek(store, key, *hash, segment);
    return 0;
}

static PyObject *
Store_put(PyObject *object, PyObject *value)
{
    Store *self = (Store *)object;
    Cell *cell = (Cell *)value;
    Segment *segment;
    Py_hash_t hash;
    uint64_t *entry;
    if (seek_cell(self, value, &hash, &entry, &segment) < 0) {
        return NULL;
    }
    if (entry != NULL && *entry != 0) {
        PyErr_SetString(PyExc_ValueError, "the key has a cell already");
        return NULL;
    }
    i64 number;
    Place *place = store_enter(self, cell->key, hash, &number);
    if (place == NULL) {
        return NULL;
    }
    place->cell = (Cell *)Py_NewRef(value);
    cell->place = number;
    Py_XSETREF(cell->store, Py_NewRef(object));
    Py_RETURN_NONE;
}

static PyObject *
Store_drop(PyObject *object, PyObject *value)
{
    Store *self = (Store *)object;
    Segment *segment;
    Py_hash_t hash;
    uint64_t *entry;
    if (seek_cell(self, value, &hash, &entry, &segment) < 0) {
        return NULL;
    }
    Place *place = entry == NULL || *entry == 0 ? NULL : place_at(self, number_in(*entry));
    if (place == NULL || form_of(place) != WHOLE || place->cell != (Cell *)value) {
        Py_RETURN_FALSE;
    }
    store_leave(self, place);
    Py_RETURN_TRUE;
}

static PyObject *
Store_get(PyObject *object, PyObject *key)
{
    Cell *cell = PyUnicode_CheckExact(key) ? store_find((Store *)object, key) : NULL;
    if (cell == NULL && PyErr_Occurred()) {
        return NULL;
    }
    return Py_NewRef(cell == NULL ? Py_None : (PyObject *)cell);
}

static PyObject *
Store_subscript(PyObject *object, PyObject *key)
{
    Cell *cell = PyUnicode_CheckExact(key) ? store_find((Store *)object, key) : NULL;
    if (cell == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetObject(PyExc_KeyError, key);
        }
        return NULL;
    }
    return Py_NewRef((PyObject *)cell);
}

static int
Store_contains(PyObject *object, PyObject *key)
{
    return PyUnicode_CheckExact(key) && store_place((Store *)object, key) != NULL;
}

static Py_ssize_t
Store_length(PyObject *object)
{
    return ((Store *)object)->count;
}

/* All cells or all keys, in the order of their places. */
static PyObject *
listed(Store *store, bool keys)
{
    PyObject *list = PyList_New(0);
    for (i64 place = 0; list != NULL && place < store->places; place++) {
        Place *at = place_at(store, place);
        if (at->key == 0) {
            continue;
        }
        PyObject *item = keys ? key_of(at) : (PyObject *)whole(store, at);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *
Store_in_order(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return listed((Store *)object, false);
}

static PyObject *
Store_keys(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return listed((Store *)object, true);
}

static PyObject *
Store_iter(PyObject *object)
{
    PyObject *list = listed((Store *)object, true);
    PyObject *iterator = list == NULL ? NULL : PyObject_GetIter(list);
    Py_XDECREF(list);
    return iterator;
}

static PyObject *
Store_pass_by(PyObject *object, PyObject *most)
{
    Store *self = (Store *)object;
    Py_ssize_t count = PyLong_AsSsize_t(most);
    if (count == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *passed = PyList_New(0);
    i64 looks = self->places < PLACES_PASSED ? self->places : PLACES_PASSED;
    for (i64 look = 0; passed != NULL && look < looks && PyList_GET_SIZE(passed) < count; look++) {
        Place *place = store_next(self);
        if (place == NULL) {
            continue;
        }
        Cell *cell = whole(self, place);
        if (cell == NULL || PyList_Append(passed, (PyObject *)cell) < 0) {
            Py_CLEAR(passed);
        }
    }
    return passed;
}

/* ------------------------------------------------------------------ beginning and ending */

static PyObject *
Store_start_over(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    store_empty((Store *)object);
    Py_RETURN_NONE;
}

static PyObject *
Store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"hash", "exact", NULL};
    PyObject *hash = Py_None;
    int exact = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$Op:Store", names, &hash, &exact)) {
        return NULL;
    }
    Store *self = (Store *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->hash = hash == Py_None ? NULL : Py_NewRef(hash);
        self->exact = exact || !types.secret_hashes;
    }
    return (PyObject *)self;
}

/* Take a member out of keyword arguments that say how a limit decides; -1 with an error if it is not there. */
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

/* serve(table, lock, clock, unit, key_bytes_max, additive, tallies, shards, lone_shard, terms): decide for `table` from
 * now on. `clock` is None for the machine's own; `terms` is None for a limit that has to be decided in Python, key by key. */
static PyObject *
Store_serve(PyObject *object, PyObject *args)
{
    Store *self = (Store *)object;
    PyObject *table, *lock, *clock, *tallies, *shards, *terms, *lone_shard;
    long long unit, key_bytes_max;
    int additive;
    if (!PyArg_ParseTuple(args, "OO!OLLpO!O!OO:serve", &table, types.lock, &lock, &clock, &unit, &key_bytes_max, &additive,
                          &PyList_Type, &tallies, &PyList_Type, &shards, &lone_shard, &terms)) {
        return NULL;
    }
    PyObject *kernel = PyObject_GetAttrString(table, "kernel"), *name = PyObject_GetAttrString(table, "name");
    if (kernel != NULL && !PyObject_TypeCheck(kernel, types.kernel)) {
        Py_CLEAR(kernel);
        PyErr_SetString(PyExc_TypeError, "a table belongs to a kernel");
    }
    if (kernel == NULL || name == NULL) {
        Py_XDECREF(kernel);
        Py_XDECREF(name);
        return NULL;
    }
    Py_XSETREF(self->kernel, (KernelFields *)kernel);
    Py_XSETREF(self->name, name);
    Py_XSETREF(self->table, Py_NewRef(table));
    Py_XSETREF(self->lock, (Lock *)Py_NewRef(lock));
    Py_XSETREF(self->clock, clock == Py_None ? NULL : Py_NewRef(clock));
    Py_XSETREF(self->tallies, Py_NewRef(tallies));
    Py_XSETREF(self->shards, Py_NewRef(shards));
    self->unit = unit;
    self->key_bytes_max = key_bytes_max;
    self->additive = additive;
    self->terms.plain = false;
    Py_CLEAR(self->lone_shard);
    if (terms != Py_None) {
        i64 kind, keeps_lines, merged_only, policy, soft;
        Terms *t = &self->terms;
        PyObject *cold = PyDict_GetItemString(terms, "cold_allowance");
        if (cold == NULL || term(terms, "kind", &kind) || term(terms, "keeps_lines", &keeps_lines) ||
            term(terms, "merged_only", &merged_only) || term(terms, "policy", &policy) || term(terms, "soft", &soft) ||
            term(terms, "window_ns", &t->window_ns) || term(terms, "quota", &t->quota) ||
            term(terms, "capacity", &t->capacity) || term(terms, "nominal", &t->nominal) ||
            term(terms, "cost_max", &t->cost_max) || term(terms, "interval_ns", &t->interval_ns) ||
            term(terms, "interval_min_ns", &t->interval_min_ns) || term(terms, "withheld", &t->withheld) || term(terms, "idle_ns", &t->idle_ns) ||
            term(terms, "overshoot_milli", &t->overshoot_milli)) {
            return NULL;
        }
        t->cold_allowance = PyFloat_AsDouble(cold);
        if (PyErr_Occurred()) {
            return NULL;
        }
        t->kind = (int)kind;
        t->keeps_lines = keeps_lines;
        t->merged_only = merged_only;
        t->policy = (int)policy;
        t->soft = soft;
        /* What drains in a nanosecond, and how full a bucket is, times its capacity, have to fit into 128 bits. */
        t->level_max = ((i128)1 << 110) / t->capacity;
        t->plain = t->kind != BUCKET || (i128)t->quota * t->capacity <= (i128)1 << 66;
    }
    if (self->terms.plain && PyObject_TypeCheck(lone_shard, types.shard)) {
        self->lone_shard = (Shard *)Py_NewRef(lone_shard);
        self->lone_tally = (Tally *)PyList_GET_ITEM(tallies, 0);
    }
    Py_RETURN_NONE;
}

static int
Store_traverse(PyObject *object, visitproc visit, void *arg)
{
    Store *self = (Store *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->table);
    Py_VISIT(self->kernel);
    Py_VISIT(self->lock);
    Py_VISIT(self->clock);
    Py_VISIT(self->tallies);
    Py_VISIT(self->shards);
    Py_VISIT(self->name);
    Py_VISIT(self->hash);
    Py_VISIT(self->lone_shard);
    for (i64 place = 0; place < self->places; place++) {
        Place *at = place_at(self, place);
        if (at->key != 0 && form_of(at) == WHOLE) {
            Py_VISIT(at->cell);
        }
    }
    return 0;
}

static int
Store_clear(PyObject *object)
{
    Store *self = (Store *)object;
    store_empty(self);
    Py_CLEAR(self->table);
    Py_CLEAR(self->kernel);
    Py_CLEAR(self->lock);
    Py_CLEAR(self->clock);
    Py_CLEAR(self->tallies);
    Py_CLEAR(self->shards);
    Py_CLEAR(self->name);
    Py_CLEAR(self->hash);
    Py_CLEAR(self->lone_shard);
    return 0;
}

static void
Store_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Store_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef Store_members[] = {
    {"admitted", T_LONGLONG, offsetof(Store, admitted), 0, NULL},
    {"refused", T_LONGLONG, offsetof(Store, refused), 0, NULL},
    {NULL},
};

static PyMethodDef Store_methods[] = {
    {"allow", (PyCFunction)(void (*)(void))store_allow, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("allow(key, cost=1, kind=None): whether `key` may use `cost` now; if so it is charged.")},
    {"allow_many", (PyCFunction)(void (*)(void))store_allow_many, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("allow_many(keys, costs=None): as `allow` for each key, in that order.")},
    {"hit", (PyCFunction)(void (*)(void))store_hit, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("hit(key, cost=1, kind=None): as `allow`, with the grounds.")},
    {"get", Store_get, METH_O, NULL},
    {"put", Store_put, METH_O, NULL},
    {"drop", Store_drop, METH_O, NULL},
    {"in_order", Store_in_order, METH_NOARGS, NULL},
    {"values", Store_in_order, METH_NOARGS, NULL},
    {"keys", Store_keys, METH_NOARGS, NULL},
    {"pass_by", Store_pass_by, METH_O, NULL},
    {"evict", (PyCFunction)(void (*)(void))store_evict, METH_FASTCALL, NULL},
    {"start_over", Store_start_over, METH_NOARGS, NULL},
    {"serve", Store_serve, METH_VARARGS, NULL},
    {NULL},
};

static PyType_Slot Store_slots[] = {
    {Py_tp_new, Store_new},
    {Py_tp_traverse, Store_traverse},
    {Py_tp_clear, Store_clear},
    {Py_tp_dealloc, Store_dealloc},
    {Py_tp_members, Store_members},
    {Py_tp_methods, Store_methods},
    {Py_tp_iter, Store_iter},
    {Py_mp_length, Store_length},
    {Py_mp_subscript, Store_subscript},
    {Py_sq_contains, Store_contains},
    {0, NULL},
};

PyType_Spec Store_spec = {
    .name = "reconverge.kernel._native.Store",
    .basicsize = sizeof(Store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Store_slots,
};
