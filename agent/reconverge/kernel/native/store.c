/* The cells of one limit by key, each in a place of its own.
 *
 * Keys are found through 256 segments of open addressing, which grow one at a time and by a quarter, so that nobody
 * who decides waits for more than one small segment to be moved. An entry is the number of a place and 32 bits of the
 * key's hash; the place has all 64 of them.
 *
 * A key is told from others by those 64 bits, which Python keys with a secret of the process: to look at the string as
 * well would be one more access to memory, as dear as all the rest. Two keys that collide share one line, so that
 * nobody is admitted too much; decision 46 has the odds. Where hashes are no secret, strings are compared.
 */
#include <stddef.h>
#include "native.h"

#define SEGMENT_FIRST 8

/* ------------------------------------------------------------------ the index */

static inline uint32_t
home_of(const Segment *segment, uint32_t tag)
{
    return (uint32_t)(((uint64_t)tag * segment->size) >> 32);
}

static inline Place *
place_at(const Store *store, i64 place)
{
    return &store->slabs[place / SLAB][place % SLAB];
}

static inline bool
same_key(PyObject *one, PyObject *other)
{
    if (one == other) {
        return true;
    }
    Py_ssize_t length = PyUnicode_GET_LENGTH(one);
    int kind = PyUnicode_KIND(one);
    return length == PyUnicode_GET_LENGTH(other) && kind == (int)PyUnicode_KIND(other) &&
           memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other), (size_t)length * kind) == 0;
}

static inline Py_hash_t
hash_of(const Store *store, PyObject *key)
{
    if (UNLIKELY(store->hash != NULL)) { /* injected by a test */
        PyObject *hash = PyObject_CallOneArg(store->hash, key);
        Py_hash_t value = hash == NULL ? -1 : PyLong_AsSsize_t(hash);
        Py_XDECREF(hash);
        return value == -1 && !PyErr_Occurred() ? -2 : value; /* as Python has it */
    }
    Py_hash_t hash = PyObject_Hash(key);
    if (LIKELY(PyUnicode_IS_ASCII(key))) {
        return hash;
    }
    /* Python hashes a string's bytes as they lie in memory: "ab" and "\u6261" have the same. So the width goes in, too. */
    hash ^= (Py_hash_t)(0x9E3779B97F4A7C15ULL * (uint64_t)(PyUnicode_KIND(key) - 1));
    return hash == -1 ? -2 : hash;
}

/* Where the entry of a key is, or the empty one where it would be. */
static inline uint64_t *
seek(Store *store, PyObject *key, Py_hash_t hash, Segment **segment_found)
{
    Segment *segment = &store->segments[(uint64_t)hash >> 56];
    *segment_found = segment;
    if (UNLIKELY(segment->size == 0)) {
        return NULL;
    }
    uint32_t tag = (uint32_t)hash, at = home_of(segment, tag);
    for (;;) {
        uint64_t entry = segment->entries[at];
        if (entry == 0) {
            return &segment->entries[at];
        }
        if ((uint32_t)entry == tag) {
            const Place *place = place_at(store, (i64)(entry >> 32) - 1);
            if (place->hash == hash && (LIKELY(!store->exact) || same_key(key_of(place), key))) {
                return &segment->entries[at];
            }
        }
        if (++at == segment->size) {
            at = 0;
        }
    }
}

Place *
store_place(Store *store, PyObject *key)
{
    Segment *segment;
    Py_hash_t hash = hash_of(store, key);
    if (UNLIKELY(hash == -1)) {
        PyErr_Clear();
        return NULL;
    }
    uint64_t *entry = seek(store, key, hash, &segment);
    return entry == NULL || *entry == 0 ? NULL : place_at(store, (i64)(*entry >> 32) - 1);
}

void
store_fetch(Store *store, PyObject *const *keys, Py_ssize_t count)
{
    if (UNLIKELY(store->hash != NULL)) {
        return;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_hash_t hash = PyObject_Hash(keys[at]);
        const Segment *segment = &store->segments[(uint64_t)hash >> 56];
        if (segment->size > 0) {
            __builtin_prefetch(&segment->entries[home_of(segment, (uint32_t)hash)]);
        }
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_hash_t hash = PyObject_Hash(keys[at]); /* the string remembers it */
        const Segment *segment = &store->segments[(uint64_t)hash >> 56];
        uint32_t tag = (uint32_t)hash, slot = segment->size > 0 ? home_of(segment, tag) : 0;
        /* Only as far as the line that was fetched may reach; what is found is not certain, and need not be. */
        for (int look = 0; segment->size > 0 && look < 8; look++) {
            uint64_t entry = segment->entries[slot];
            if (entry == 0) {
                break;
            }
            if ((uint32_t)entry == tag) {
                __builtin_prefetch(place_at(store, (i64)(entry >> 32) - 1), 1);
                break;
            }
            slot = slot + 1 == segment->size ? 0 : slot + 1;
        }
    }
}

Cell *
store_find(Store *store, PyObject *key)
{
    Place *place = store_place(store, key);
    return place == NULL ? NULL : whole(store, place);
}

static bool
grow(Segment *segment)
{
    uint32_t size = segment->size == 0 ? SEGMENT_FIRST : segment->size + segment->size / 4;
    uint64_t *entries = pages_new(size * sizeof(uint64_t)), *old = segment->entries;
    if (entries == NULL) {
        return false;
    }
    uint32_t old_size = segment->size;
    segment->entries = entries;
    segment->size = size;
    for (uint32_t from = 0; from < old_size; from++) {
        if (old[from] != 0) {
            uint32_t at = home_of(segment, (uint32_t)old[from]);
            while (entries[at] != 0) {
                at = at + 1 == size ? 0 : at + 1;
            }
            entries[at] = old[from];
        }
    }
    pages_free(old, old_size * sizeof(uint64_t));
    return true;
}

/* Take an entry out, and move those that follow it up, so that no marks of what was here are needed. */
static void
take_out(Segment *segment, uint64_t *entry)
{
    uint32_t hole = (uint32_t)(entry - segment->entries), at = hole;
    for (;;) {
        at = at + 1 == segment->size ? 0 : at + 1;
        uint64_t next = segment->entries[at];
        if (next == 0) {
            break;
        }
        uint32_t home = home_of(segment, (uint32_t)next);
        /* Whether its home is outside of what lies between the hole and itself, all taken round the end. */
        bool moves = hole <= at ? (home <= hole || home > at) : (home <= hole && home > at);
        if (moves) {
            segment->entries[hole] = next;
            hole = at;
        }
    }
    segment->entries[hole] = 0;
    segment->count--;
}

/* ------------------------------------------------------------------ places */

Place *
store_next(Store *store)
{
    Place *place = place_at(store, store->hand);
    store->hand = (store->hand + 1) % store->places;
    return place->key == 0 ? NULL : place;
}

/* By its entry, as a place does not know its number. */
i64
number_of_place(const Store *store, const Place *place)
{
    Segment *segment;
    PyObject *key = key_of(place);
    uint64_t *entry = seek((Store *)store, key, place->hash, &segment);
    return (i64)(*entry >> 32) - 1;
}

static i64
new_place(Store *store)
{
    if (store->empty_count > 0) {
        return store->empty[--store->empty_count];
    }
    if (store->places == store->slabs_count * SLAB) {
        if ((store->slabs_count & (store->slabs_count - 1)) == 0) {
            Place **slabs = PyMem_Realloc(store->slabs, (store->slabs_count ? 2 * store->slabs_count : 1) * sizeof(*slabs));
            if (slabs == NULL) {
                PyErr_NoMemory();
                return -1;
            }
            store->slabs = slabs;
        }
        Place *slab = slab_new(store->slabs_count > 0); /* a limit of few keys should not take a huge page */
        if (slab == NULL) {
            return -1;
        }
        store->slabs[store->slabs_count++] = slab;
    }
    return store->places++;
}

static void
leave_place(Store *store, i64 place)
{
    if (store->empty_count == store->empty_size) {
        i64 size = store->empty_size ? 2 * store->empty_size : 16;
        uint32_t *empty = PyMem_Realloc(store->empty, size * sizeof(*empty));
        if (empty == NULL) {
            return; /* the place stays empty for good */
        }
        store->empty = empty;
        store->empty_size = size;
    }
    store->empty[store->empty_count++] = (uint32_t)place;
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
    *entry = seek(store, key, *hash, segment);
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
    if (segment->count + 1 > segment->size - segment->size / 8) {
        if (!grow(segment)) {
            return NULL;
        }
        entry = seek(self, cell->key, hash, &segment);
    }
    i64 place = new_place(self);
    if (place < 0) {
        return NULL;
    }
    *entry = (uint64_t)(place + 1) << 32 | (uint32_t)hash;
    segment->count++;
    self->count++;
    *place_at(self, place) = (Place){
        .hash = hash, .key = (uintptr_t)Py_NewRef(cell->key) | WHOLE, .cell = (Cell *)Py_NewRef(value)};
    cell->place = place;
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
    Place *place = entry == NULL || *entry == 0 ? NULL : place_at(self, (i64)(*entry >> 32) - 1);
    if (place == NULL || form_of(place) != WHOLE || place->cell != (Cell *)value) {
        Py_RETURN_FALSE;
    }
    store_leave(self, place);
    Py_RETURN_TRUE;
}

void
store_leave(Store *self, Place *place)
{
    Segment *segment;
    PyObject *key = key_of(place);
    uint64_t *entry = seek(self, key, place->hash, &segment);
    i64 number = (i64)(*entry >> 32) - 1;
    Cell *cell = form_of(place) == WHOLE ? place->cell : NULL;
    leave_place(self, number);
    take_out(segment, entry);
    *place = (Place){0};
    self->count--;
    Py_XDECREF(cell);
    Py_DECREF(key);
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

static void
empty(Store *self)
{
    for (i64 place = 0; place < self->places; place++) {
        Place *at = place_at(self, place);
        Place old = *at;
        *at = (Place){0};
        if (old.key != 0) {
            if (form_of(&old) == WHOLE) {
                Py_DECREF(old.cell);
            }
            Py_DECREF(key_of(&old));
        }
    }
    for (i64 slab = 0; slab < self->slabs_count; slab++) {
        slab_free(self->slabs[slab]);
    }
    PyMem_Free(self->slabs);
    PyMem_Free(self->empty);
    for (int at = 0; at < SEGMENTS; at++) {
        pages_free(self->segments[at].entries, self->segments[at].size * sizeof(uint64_t));
    }
    memset(self->segments, 0, sizeof(self->segments));
    self->slabs = NULL;
    self->empty = NULL;
    self->slabs_count = self->places = self->empty_count = self->empty_size = self->count = self->hand = 0;
    self->admitted = self->refused = 0;
}

static PyObject *
Store_start_over(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    empty((Store *)object);
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

/* serve(table, lock, clock, unit, key_bytes_max, additive, tallies, lone_shard, terms): decide for `table` from now on. `clock` is None for the
 * machine's own; `terms` is None for a limit that has to be decided in Python, key by key. */
static PyObject *
Store_serve(PyObject *object, PyObject *args)
{
    Store *self = (Store *)object;
    PyObject *table, *lock, *clock, *tallies, *terms, *lone_shard;
    long long unit, key_bytes_max;
    int additive;
    if (!PyArg_ParseTuple(args, "OO!OLLpO!OO:serve", &table, types.lock, &lock, &clock, &unit, &key_bytes_max, &additive, &PyList_Type,
                          &tallies, &lone_shard, &terms)) {
        return NULL;
    }
    PyObject *kernel = PyObject_GetAttrString(table, "kernel"), *name = PyObject_GetAttrString(table, "name");
    if (kernel == NULL || name == NULL) {
        Py_XDECREF(kernel);
        Py_XDECREF(name);
        return NULL;
    }
    Py_XSETREF(self->kernel, kernel);
    Py_XSETREF(self->name, name);
    Py_XSETREF(self->table, Py_NewRef(table));
    Py_XSETREF(self->lock, (Lock *)Py_NewRef(lock));
    Py_XSETREF(self->clock, clock == Py_None ? NULL : Py_NewRef(clock));
    Py_XSETREF(self->tallies, Py_NewRef(tallies));
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
    empty(self);
    Py_CLEAR(self->table);
    Py_CLEAR(self->kernel);
    Py_CLEAR(self->lock);
    Py_CLEAR(self->clock);
    Py_CLEAR(self->tallies);
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
