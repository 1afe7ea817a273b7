/* What deciding about one key and about many have in common. */
#ifndef RECONVERGE_DECIDE_H
#define RECONVERGE_DECIDE_H

#include <time.h>

#include "explain.h"

#define COARSE_ERROR_NS SECOND_NS
/* The coarse clock lags by a few milliseconds, the time between two ticks. */

/* What was asked, with the cost in the parts in which the limit counts. */
typedef struct {
    PyObject *key;
    PyObject *cost_object; /* owned; only if the cost is too large for `cost` */
    Shard *shard;          /* owned; only if it had to be fetched */
    i64 cost;
} Asked;

int read_clock(Store *store, i64 *now_ns); /* -1 with an error */
PyObject *serves_nobody(void); /* NULL, with an error */
/* Decide on the slow path, and explain the decision if `decision` is not NULL. -1 with an error. */
int decide_under_lock(Store *store, Asked *asked, i64 now_ns, bool *allowed, PyObject **decision);

enum { OWN_CLOCK, TOLD };

/* Whether it is surely before `until_ns`, by the machine's own clock or by what was told. One that is a quarter as dear
 * says so, unless it is almost that late; `now_ns` is the moment by which it was judged. */
static inline bool
is_before(int clock, i64 *now_ns, i64 until_ns)
{
    struct timespec now;
    if (clock == TOLD) {
        return *now_ns < until_ns;
    }
#ifdef __linux__
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    *now_ns = now.tv_sec * SECOND_NS + now.tv_nsec;
    if (LIKELY(*now_ns < until_ns - COARSE_ERROR_NS)) {
        return true;
    }
#endif
    clock_gettime(CLOCK_MONOTONIC, &now);
    *now_ns = now.tv_sec * SECOND_NS + now.tv_nsec;
    return *now_ns < until_ns;
}

/* Charge the cost if one comparison says that it may be; nothing runs in between, so what is seen is true, unless
 * somebody is in the middle of something. The place that was charged, or NULL, also if it `explains` and that cannot be
 * done here. */
ALWAYS_INLINE Place *
charged_at_once(Store *store, const Asked *asked, int clock, i64 *now_ns, bool explains)
{
    if (UNLIKELY(!PyUnicode_CheckExact(asked->key) || store->lock->held || asked->cost_object != NULL)) {
        return NULL;
    }
    Place *place = store_place(store, asked->key);
    if (UNLIKELY(place == NULL || form_of(place) == QUIET)) {
        return NULL;
    }
    if (explains && store->terms.kind == BUCKET && !explains_at_once(store, place)) {
        return NULL;
    }
    if (form_of(place) == LONE) {
        if (place->lone.used + asked->cost > place->lone.room || !is_before(clock, now_ns, place->lone.until_ns)) {
            return NULL;
        }
        place->lone.used += (int32_t)asked->cost;
        store->lone_tally->charged += asked->cost;
    } else {
        Cell *cell = place->cell;
        if (cell->used + asked->cost > cell->room || !is_before(clock, now_ns, cell->until_ns)) {
            return NULL;
        }
        cell->used += asked->cost;
    }
    store->admitted++;
    return place;
}

#endif
