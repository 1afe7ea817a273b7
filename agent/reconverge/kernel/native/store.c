/* The Python class of a store: a mapping from keys to the cells of one limit, with methods that decide. */
#include <stddef.h>
#include "places.h"

#define LOOKED_AROUND 4096
/* How many places one call visits. */
#define JUMP 2654435769ULL

Cell *
store_find(Store *store, PyObject *key)
{
    Place *place = store_place(store, key);
    return place == NULL ? NULL : whole(store, place);
}

/* ------------------------------------------------------------------ as a mapping */

/* Find the entry of a cell, or the empty one for it (NULL without room); -1 with an error if it is no cell. */
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

/* hand_over(cell, other): have another store keep a cell of this one. */
static PyObject *
Store_hand_over(PyObject *object, PyObject *args)
{
    PyObject *cell, *other;
    if (!PyArg_ParseTuple(args, "O!O!:hand_over", types.cell, &cell, types.store, &other)) {
        return NULL;
    }
    PyObject *put = Store_put(other, cell);
    if (put == NULL) {
        return NULL;
    }
    Py_DECREF(put);
    PyObject *dropped = Store_drop(object, cell);
    if (dropped == NULL) {
        return NULL;
    }
    Py_DECREF(dropped);
    Py_RETURN_NONE;
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

/* Skip some places, so that the cells that `pass_by` returns are a sample of all. */
static PyObject *
Store_jump(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Store *self = (Store *)object;
    if (self->places > 0) {
        self->hand = (self->hand + (i64)((uint64_t)self->places * JUMP >> 32)) % self->places;
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ beginning and ending */

/* rest(key): free the object of a quiet key until the key is used again; returns whether that was possible. */
static PyObject *
Store_rest(PyObject *object, PyObject *key)
{
    Store *self = (Store *)object;
    Place *place = PyUnicode_CheckExact(key) ? store_place(self, key) : NULL;
    return PyBool_FromLong(place != NULL && try_quiet(self, place));
}

/* look_around(shard, first): make the next decision about some keys of that shard take the slow path. Returns the place
 * at which to go on; 0 when all have been visited. */
static PyObject *
Store_look_around(PyObject *object, PyObject *args)
{
    Store *self = (Store *)object;
    PyObject *shard;
    long long first;
    if (!PyArg_ParseTuple(args, "O!L:look_around", types.shard, &shard, &first)) {
        return NULL;
    }
    i64 end = first + LOOKED_AROUND < self->places ? first + LOOKED_AROUND : self->places;
    for (i64 place = first < 0 ? 0 : first; place < end; place++) {
        Place *at = place_at(self, place);
        if (at->key == 0) {
            continue;
        }
        if (form_of(at) == WHOLE && (PyObject *)at->cell->shard == shard) {
            at->cell->room = -1;
        } else if (form_of(at) == LONE) {
            at->lone.room = -1;
        } /* a quiet cell takes the slow path anyway */
    }
    return PyLong_FromLongLong(end < self->places ? end : 0);
}

/* The numbers of keys that are kept as an object, in the local form, and in the compressed form; and the bytes that the
 * last take outside of their places. */
static PyObject *
Store_forms(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    const Store *self = (Store *)object;
    long long forms[FORMS] = {0}, aside = 0;
    for (i64 place = 0; place < self->places; place++) {
        const Place *at = place_at(self, place);
        if (at->key != 0) {
            forms[form_of(at)]++;
            aside += form_of(at) == QUIET ? quiet_aside(at) : 0;
        }
    }
    return Py_BuildValue("LLLL", forms[WHOLE], forms[LONE], forms[QUIET], aside);
}

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
        self->let_go_ns = -NEVER_NS;
    }
    return (PyObject *)self;
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
    Py_VISIT(self->reported_as);
    Py_VISIT(self->beside);
    Py_VISIT(self->homes);
    Py_VISIT(self->overflow);
    Py_VISIT(self->peers);
    Py_VISIT(self->hash);
    Py_VISIT(self->lone_shard);
    Py_VISIT(self->evicted);
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
    Py_CLEAR(self->reported_as);
    Py_CLEAR(self->beside);
    Py_CLEAR(self->homes);
    Py_CLEAR(self->overflow);
    Py_CLEAR(self->peers);
    Py_CLEAR(self->hash);
    Py_CLEAR(self->lone_shard);
    Py_CLEAR(self->evicted);
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
    {"overflowed", T_LONGLONG, offsetof(Store, overflowed), 0, NULL},
    {"overflow", T_OBJECT, offsetof(Store, overflow), 0, NULL},
    {"left_early", T_LONGLONG, offsetof(Store, left_early), 0, NULL},
    {"let_go_ns", T_LONGLONG, offsetof(Store, let_go_ns), 0, NULL},
    {"beside", T_OBJECT, offsetof(Store, beside), 0, NULL},
    {"homes", T_OBJECT, offsetof(Store, homes), 0, NULL},
    {"wide", T_BOOL, offsetof(Store, wide), 0, NULL},
    {NULL},
};

static PyMethodDef Store_methods[] = {
    {"allow", (PyCFunction)(void (*)(void))store_allow, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("allow(key, cost=1, kind=None): whether `key` may use `cost` now; if so it is charged.")},
    {"allow_many", (PyCFunction)(void (*)(void))store_allow_many, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("allow_many(keys, costs=None): as `allow` for each key, in that order.")},
    {"hit", (PyCFunction)(void (*)(void))store_hit, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("hit(key, cost=1, kind=None): as `allow`, with the grounds.")},
    {"test", (PyCFunction)(void (*)(void))store_test, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("test(key, cost=1, kind=None): the answer that `hit` would give, without a charge.")},
    {"settles", (PyCFunction)(void (*)(void))store_settles, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("settles(key, cost=1, kind=None): whether memory can settle that; False, too, if that is not known here.")},
    {"get", Store_get, METH_O, NULL},
    {"put", Store_put, METH_O, NULL},
    {"drop", Store_drop, METH_O, NULL},
    {"hand_over", Store_hand_over, METH_VARARGS, NULL},
    {"in_order", Store_in_order, METH_NOARGS, NULL},
    {"values", Store_in_order, METH_NOARGS, NULL},
    {"keys", Store_keys, METH_NOARGS, NULL},
    {"pass_by", Store_pass_by, METH_O, NULL},
    {"jump", Store_jump, METH_NOARGS, NULL},
    {"evict", (PyCFunction)(void (*)(void))store_evict, METH_FASTCALL, NULL},
    {"start_over", Store_start_over, METH_NOARGS, NULL},
    {"look_around", Store_look_around, METH_VARARGS, NULL},
    {"rest", Store_rest, METH_O, NULL},
    {"forms", Store_forms, METH_NOARGS, NULL},
    {"serve", store_serve, METH_VARARGS, NULL},
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
