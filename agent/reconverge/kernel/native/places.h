/* The functions and types that the index of a store, its places and its Python methods share. */
#ifndef RECONVERGE_PLACES_H
#define RECONVERGE_PLACES_H

#include "native.h"

static inline Place *
place_at(const Store *store, i64 place)
{
    return &store->slabs[place / SLAB][place % SLAB];
}

/* The place of this very cell in its store; NULL if it was dropped, or never put. */
static inline Place *
place_of(const Cell *cell)
{
    const Store *store = (const Store *)cell->store;
    if (store == NULL || cell->place < 0 || cell->place >= store->places) {
        return NULL;
    }
    Place *place = place_at(store, cell->place);
    return place->key != 0 && form_of(place) == WHOLE && place->cell == cell ? place : NULL;
}

static inline i64
number_in(uint64_t entry)
{
    return (i64)(entry >> 32) - 1;
}

/* ------------------------------------------------------------------ index.c */

Py_hash_t hash_of(const Store *store, PyObject *key); /* -1 with an error */
/* Where the entry of a key is, or the empty one where it would be, or NULL if there is none. */
uint64_t *index_seek(const Store *store, PyObject *key, Py_hash_t hash, Segment **segment);
int index_enter(Store *store, PyObject *key, Py_hash_t hash, i64 place); /* a key that is not there; -1 with an error */
void index_take_out(Segment *segment, uint64_t *entry);
void index_free(Store *store);

/* ------------------------------------------------------------------ places.c */

/* A place for a key that has none; the caller fills it. NULL with an error. */
Place *store_enter(Store *store, PyObject *key, Py_hash_t hash, i64 *number);
void store_empty(Store *store);

#endif
