/* Moves cells into the window of the hub's clock (`kernel/algorithms/edges.py`), and queues them for reports
 * (`kernel/reporting/requests.py`), for the limits that C decides. */
#include "cells.h"

bool
fits(const Store *store, const Cell *cell)
{
    const Terms *terms = &store->terms;
    if (terms->kind != BUCKET) {
        return true;
    }
    /* If a charge to a bucket may be given back, Python decides, as it stores the bucket's lowest levels. */
    return terms->plain && cell->lows == Py_None && cell->used < NEVER_NS / 4 &&
           cell->level + (i128)cell->used * terms->window_ns <= terms->level_max;
}

void
measure(Store *store, Cell *cell)
{
    i64 charged = cell->used - cell->counted;
    if (charged != 0) {
        cell->counted = cell->used;
        cell->charged += charged;
        cell->arrived = at_most(cell->arrived + charged, DEMAND_MAX);
        ((Tally *)PyList_GET_ITEM(store->tallies, cell->shard->index))->charged += charged;
    }
}

/* Start to measure the fleet's demand anew, for a new window; of the old one only the demand is kept. */
static void
forget_window(const Terms *terms, Cell *cell, i64 steps)
{
    double window = (double)terms->window_ns, share = 1.0;
    if (steps == 1) {
        share = (double)(closes_ns(terms, cell) - cell->heard_ns) / window;
        share = share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
    }
    double asked = (steps == 1 ? (double)cell->fleet_window : 0.0) + cell->fleet_demand * (window / 1e9) * share;
    cell->last_demand = asked < (double)DEMAND_MAX ? (i64)asked : DEMAND_MAX;
    cell->fleet_window = cell->window_demand = cell->silent = 0;
    cell->fleet_used = 0.0;
    cell->comfortable = false;
    cell->back_off_ns = 0;
    cell->low_water = low_water_for(terms->kind == FIXED && cell->sealed ? 0 : cell->allowance);
}

static void
open_window(const Terms *terms, Cell *cell, i64 steps, i64 epoch)
{
    switch (terms->kind) {
    case FIXED:
        cell->used = cell->counted = 0;
        cell->allowance = !cell->sealed || (i128)epoch * terms->window_ns >= (i128)cell->shard->opens_us * 1000 ? cell->base : 0;
        cell->others_current = 0;
        break;
    case SLIDING:
        if (cell->at_hub) {
            cell->allowance = 0; /* a grant for the window before is void */
        }
        if (has_share(terms, cell)) {
            i128 begins_ns = (i128)(epoch - 1) * terms->window_ns;
            cell->at_hub = begins_ns < (i128)cell->shard->opens_us * 1000;
            cell->allowance = cell->at_hub ? 0 : cell->base;
        }
        cell->previous = steps == 1 ? cell->used : 0;
        cell->used = cell->counted = 0;
        cell->others_previous = steps == 1 ? cell->others_current : 0;
        cell->others_current = 0;
        break;
    default:
        break; /* a bucket knows no windows; only demand is counted by them */
    }
}

bool
needs_time(const Shard *shard, i64 now_ns)
{
    return shard->alone && now_ns - shard->refreshed_ns >= SOLO_REFRESH_NS;
}

int
refresh_time(Store *store, i64 now_ns)
{
    PyObject *offset = PyObject_CallMethod((PyObject *)store->kernel, "refresh_offset_ns", "L", (long long)now_ns);
    Py_XDECREF(offset);
    return offset == NULL ? -1 : 0;
}

/* The hub's time, as far as this node knows it; a node without a hub compares its two clocks now and then. */
static int
hub_time(Store *store, const Cell *cell, i64 now_ns, i64 *hub_ns)
{
    if (needs_time(cell->shard, now_ns)) {
        store->missing = TIME;
        return -1;
    }
    *hub_ns = now_ns + cell->shard->offset_ns;
    return 0;
}

int
enter_window(Store *store, Cell *cell, i64 now_ns)
{
    const Terms *terms = &store->terms;
    i64 hub_ns;
    if (hub_time(store, cell, now_ns, &hub_ns) < 0) {
        return -1;
    }
    i64 epoch = (i64)floor_div(hub_ns, terms->window_ns);
    if (epoch == cell->epoch - 1) {
        epoch = cell->epoch;
    }
    i64 steps = epoch - cell->epoch;
    if (steps != 0) {
        measure(store, cell);
        if (cell->epoch >= 0) {
            open_window(terms, cell, steps, epoch);
            forget_window(terms, cell, steps);
        }
        cell->epoch = epoch;
    }
    cell->opened_ns = now_ns - (hub_ns - epoch * terms->window_ns);
    cell->lag_ns = cell->shard->lag_ns;
    return 0;
}

void
set_until(const Store *store, Cell *cell, i64 now_ns)
{
    const Terms *terms = &store->terms;
    i64 until_ns = at_most(closes_ns(terms, cell), meter_until_ns(terms, cell));
    i64 leased_until_ns = lease_until_ns(terms, cell);
    if (!terms->keeps_allowances && now_ns < leased_until_ns) {
        until_ns = at_most(until_ns, leased_until_ns);
    }
    cell->until_ns = until_ns;
}

int
advance(Store *store, Cell *cell, i64 now_ns)
{
    if (store->terms.kind == BUCKET) {
        measure(store, cell);
        bucket_settle(&store->terms, cell, now_ns);
    } else if (now_ns < cell->until_ns) {
        return 0;
    }
    if (enter_window(store, cell, now_ns) < 0) {
        return -1;
    }
    set_until(store, cell, now_ns);
    cell->room = -1; /* it was computed for the old meter */
    return 0;
}

/* ------------------------------------------------------------------ asking to exchange */

/* Have the loop woken once no lock is held. */
static void
want_wake(Store *store)
{
    store->kernel->wake_wanted = store->kernel->after_unlock = true;
}

/* Whether the loop looks by itself before an exchange could begin that is wanted at `when_ns`, and is not to be woken.
 */
static bool
looks_by_itself(const Shard *shard, i64 when_ns)
{
    return shard->looks_ns <= when_ns;
}

/* The tally of a cell's limit at the cell's shard. */
static inline Tally *
tally_of(const Store *store, const Cell *cell)
{
    return (Tally *)PyList_GET_ITEM(store->tallies, cell->shard->index);
}

/* Whether the cell counts all keys beyond `keys_max`, and its strict limit refuses them. */
static inline bool
is_refused(const Store *store, const Cell *cell)
{
    return UNLIKELY(cell->place < 0) && store->terms.overshoot_milli == 0 && !cell->held;
}

int
mark_dirty(Store *store, Cell *cell)
{
    if (cell->dirty || is_refused(store, cell)) {
        return 0;
    }
    cell->comfortable = false;
    cell->fresh = !is_heard(cell) && cell->place >= 0;
    if (!cell->fresh) {
        return lanes_append(cell->shard->dirty, cell);
    }
    if (fifo_append(&tally_of(store, cell)->fresh->cells, cell) < 0) {
        return -1;
    }
    cell->dirty = 1;
    return 0;
}

int
call_for_exchange(Store *store, Cell *cell, i64 now_ns)
{
    Shard *shard = cell->shard;
    /* Read before, because another decision may come in between. */
    bool first = (is_heard(cell) ? shard->dirty->count : tally_of(store, cell)->fresh->cells.count) == 0;
    if (mark_dirty(store, cell) < 0) {
        return -1;
    }
    if (now_ns >= shard->attended_until_ns || (first && !looks_by_itself(shard, shard->regular_ns))) {
        want_wake(store);
    }
    return 0;
}

void
stay_silent(Store *store, const Cell *cell, i64 now_ns)
{
    if (now_ns >= cell->shard->attended_until_ns) {
        want_wake(store);
    }
}

int
request_early(Store *store, Cell *cell, i64 when_ns)
{
    Shard *shard = cell->shard;
    if (cell->urgent || shard->alone || store->terms.merged_only || is_refused(store, cell)) {
        return 0;
    }
    if (cell->fresh) {
        when_ns = at_least(when_ns, tally_of(store, cell)->fresh_from_ns);
    } else if (lanes_append(shard->urgent, cell) < 0) {
        return -1;
    }
    cell->urgent = true;
    cell->early_ns = when_ns;
    if (when_ns < shard->early_ns) {
        shard->early_ns = when_ns;
        if (!looks_by_itself(shard, at_least(shard->begins_ns, when_ns))) {
            want_wake(store);
        }
    }
    return 0;
}
