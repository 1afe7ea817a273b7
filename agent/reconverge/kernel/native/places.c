/* The places in which a store keeps its keys, none of which ever moves. */
#include "places.h"

Place *
store_next(Store *store)
{
    Place *place = place_at(store, store->hand);
    store->hand = (store->hand + 1) % store->places;
    return place->key == 0 ? NULL : place;
}

/* The number of a place, found by its entry in the index, as a place does not store it. */
i64
number_of_place(const Store *store, const Place *place)
{
    Segment *segment;
    PyObject *key = key_of(place);
    return number_in(*index_seek(store, key, place->hash, &segment));
}

static i64
new_place(Store *store)
{
    if (store->empty_count > 0) {
        return store->empty[--store->empty_count];
    }
    if (store->places == store->slabs_count * SLAB) {
        if ((store->slabs_count & (store->slabs_count - 1)) == 0) {
            i64 size = store->slabs_count > 0 ? 2 * store->slabs_count : 1;
            Place **slabs = PyMem_Realloc(store->slabs, (size_t)size * sizeof(*slabs));
            if (slabs == NULL) {
                PyErr_NoMemory();
                return -1;
            }
            store->slabs = slabs;
        }
        Place *slab = slab_new();
        if (slab == NULL) {
            return -1;
        }
        if (store->slabs_count > 0) {
            slab_is_full(store->slabs[store->slabs_count - 1]);
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

/* Store in `homes` that this store has a key, unless it has too many keys; -1 with an error.
 *
 * A reader of `homes` also looks into the store itself, so a key may be listed that could not be entered after all. */
static int
list_key(Store *store, PyObject *key)
{
    if (store->wide || !has_beside(store)) {
        return 0;
    }
    if (store->count >= LISTED_MAX) {
        if (PyList_Append(store->beside, (PyObject *)store) < 0) {
            return -1;
        }
        store->wide = true; /* a listed key stays listed until it leaves */
        return 0;
    }
    return PyDict_SetItem(store->homes, key, (PyObject *)store);
}

static void
unlist_key(Store *store, PyObject *key)
{
    if (!has_beside(store)) {
        return;
    }
    if (PyDict_GetItemWithError(store->homes, key) == (PyObject *)store && PyDict_DelItem(store->homes, key) < 0) {
        PyErr_Clear(); /* it is listed, and no other code runs in between */
    }
}

Place *
store_enter(Store *store, PyObject *key, Py_hash_t hash, i64 *number)
{
    if (list_key(store, key) < 0) {
        return NULL;
    }
    *number = new_place(store);
    if (*number < 0) {
        return NULL;
    }
    if (index_enter(store, key, hash, *number) < 0) {
        leave_place(store, *number);
        return NULL;
    }
    store->count++;
    Place *place = place_at(store, *number);
    *place = (Place){.hash = hash, .key = (uintptr_t)Py_NewRef(key)};
    return place;
}

void
store_leave(Store *self, Place *place)
{
    Segment *segment;
    PyObject *key = key_of(place);
    uint64_t *entry = index_seek(self, key, place->hash, &segment);
    Cell *cell = form_of(place) == WHOLE ? place->cell : NULL;
    if (cell != NULL) {
        agenda_forget(cell);
    } else if (form_of(place) == QUIET) {
        quiet_leave(place);
    }
    unlist_key(self, key);
    leave_place(self, number_in(*entry));
    index_take_out(segment, entry);
    *place = (Place){0};
    self->count--;
    Py_XDECREF(cell);
    Py_DECREF(key);
}

void
store_empty(Store *self)
{
    for (i64 place = 0; place < self->places; place++) {
        Place *at = place_at(self, place);
        Place old = *at;
        if (old.key != 0 && form_of(&old) == WHOLE) {
            agenda_forget(old.cell);
        } else if (old.key != 0 && form_of(&old) == QUIET) {
            quiet_leave(&old);
        }
        *at = (Place){0};
        if (old.key != 0) {
            unlist_key(self, key_of(&old));
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
    index_free(self);
    self->slabs = NULL;
    self->empty = NULL;
    self->slabs_count = self->places = self->empty_count = self->empty_size = self->count = self->hand = 0;
    self->admitted = self->refused = 0;
}

