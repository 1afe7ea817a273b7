/* Types and functions for decisions about one key and about many. */
#ifndef RECONVERGE_DECIDE_H
#define RECONVERGE_DECIDE_H

#include <time.h>

#include "explain.h"

#define COARSE_ERROR_NS SECOND_NS
/* The time read at the last tick is at most a few milliseconds old, the time between two ticks. */

#ifdef __linux__
#define SYSTEM_CLOCK CLOCK_BOOTTIME
#else
#define SYSTEM_CLOCK CLOCK_MONOTONIC
#endif
/* The clock of Python's SystemClock; on Linux it goes on while the machine is suspended, as leases do. */

/* The arguments of a request, with the cost in the unit of the limit. */
typedef struct {
    PyObject *key;
    PyObject *cost_object; /* owned; only if the cost is too large for `cost` */
    Shard *shard;          /* owned; only if it had to be fetched */
    i64 cost;
} Asked;

int read_clock(Store *store, i64 *now_ns); /* -1 with an error */
int read_arguments(Store *store, PyObject *const *args, Py_ssize_t count, PyObject *names, Asked *asked); /* likewise */
PyObject *no_limit_error(void); /* NULL, with an error */
/* Decide on the slow path, and explain the decision if `decision` is not NULL. -1 with an error. */
int decide_under_lock(Store *store, Asked *asked, i64 now_ns, bool *allowed, PyObject **decision);

/* The answer of a method of `Table` in Python; NULL with an error. Not with the lock held. */
PyObject *answer_in_python(Store *store, const Asked *asked, i64 now_ns, const char *method);
/* The cost that this node may still admit: within its allowance, or as far past it as the policy allows. */
i64 spare_beyond(const Store *store, Cell *cell, i64 cost, i64 now_ns);
bool fits_with(const Store *store, const Cell *cell, i64 cost); /* whether C can decide about that cost */

/* Read what was asked. -1 with an error. */
static inline int
ask(Store *store, PyObject *const *args, Py_ssize_t count, PyObject *names, Asked *asked)
{
    if (UNLIKELY(store->lock == NULL)) {
        no_limit_error();
        return -1;
    }
    if (LIKELY(count == 1 && names == NULL)) {
        asked->key = args[0];
        asked->cost = store->unit;
        asked->cost_object = NULL;
        asked->shard = NULL;
        return 0;
    }
    return read_arguments(store, args, count, names, asked);
}

enum { OWN_CLOCK, CALLERS_CLOCK };

static inline i64
clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* The time of the system's clock at the first decision of the last tick. A coarse clock takes a quarter as long to
 * read, but none counts like the system's clock, so it only shows whether there was a tick since. The coarse wall clock
 * serves: a suspension moves it in the same step as the system's clock, so the first decision after one reads that
 * anew. */
typedef struct {
    i64 coarse_ns, now_ns;
} Tick;
extern Tick last_tick;

/* Whether it is certainly before `until_ns`, by the machine's own clock or by the caller's. The last tick shows it,
 * unless the tick is close to `until_ns`; `now_ns` becomes the moment that was compared. */
static inline bool
is_before(int clock, i64 *now_ns, i64 until_ns)
{
    if (clock == CALLERS_CLOCK) {
        return *now_ns < until_ns;
    }
#ifdef __linux__
    i64 coarse_ns = clock_ns(CLOCK_REALTIME_COARSE);
    if (UNLIKELY(coarse_ns != last_tick.coarse_ns)) {
        last_tick = (Tick){coarse_ns, clock_ns(SYSTEM_CLOCK)};
    }
    *now_ns = last_tick.now_ns;
    if (LIKELY(*now_ns < until_ns - COARSE_ERROR_NS)) {
        return true;
    }
#endif
    *now_ns = clock_ns(SYSTEM_CLOCK);
    return *now_ns < until_ns;
}

/* Charge the cost if one comparison admits it. No other code runs in between, so the numbers are true, unless another
 * call is in the middle of a change. Returns the place that was charged, or NULL; NULL also if it `explains` and C
 * cannot explain the decision. */
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
