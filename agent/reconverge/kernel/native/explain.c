/* Explains decisions: `kernel/table/explain.py`. No other code changes the key between a decision and its explanation:
 * either both happen in one call into C, or the limit's lock is held. */
#include "explain.h"

#include "decision.h"

#define MICROSECOND_NS 1000

/* Until when a hub that has lost its data grants nothing of this key to this node. */
static inline i64
relearned(const Terms *terms, const Cell *cell)
{
    return cell->shard->lost_ns + (has_share(terms, cell) ? terms->deals_shares_ns : terms->relearns_ns);
}

static i128
retry_after_ns(const Terms *terms, const Cell *cell, i64 cost, i64 left, i64 now_ns)
{
    i64 allowance = usable_allowance(terms, cell, now_ns);
    i128 wait_ns;
    if (cell->shard->alone) {
        return meter_wait_ns(terms, cell, allowance, cost, now_ns);
    }
    if (cost <= left) {
        wait_ns = terms->interval_ns;
    } else {
        wait_ns = meter_fleet_wait_ns(terms, cell, cost, now_ns);
        if (!is_heard(cell)) { /* the fleet has used at least what this node has; a bucket drains by its allowance */
            i128 least_ns = terms->kind == BUCKET ? wait_ns + terms->interval_ns : terms->interval_ns;
            wait_ns = wait_ns < least_ns ? least_ns : wait_ns;
        }
    }
    if (cost <= allowance && !cell->at_hub) {
        i128 own_ns = meter_wait_ns(terms, cell, allowance, cost, now_ns);
        return own_ns < wait_ns ? own_ns : wait_ns;
    }
    i64 relearned_ns = relearned(terms, cell) - now_ns;
    return wait_ns < relearned_ns ? relearned_ns : wait_ns;
}

ALWAYS_INLINE bool
certainly(const Terms *terms, const Cell *cell, i64 cost, bool allowed, i64 now_ns)
{
    if (LIKELY(cell->shard->alone)) {
        return true;
    }
    if (!is_heard(cell)) {
        return false;
    }
    if (allowed) {
        return meter_spare(terms, cell, usable_allowance(terms, cell, now_ns), now_ns) >= cost;
    }
    if (now_ns < relearned(terms, cell) || cell->capacity < terms->own_part) {
        return false;
    }
    return meter_fleet_earliest_ns(terms, cell, cost, now_ns) > MICROSECOND_NS;
}

bool
is_certain(const Terms *terms, const Cell *cell, i64 cost, bool allowed, i64 now_ns)
{
    return certainly(terms, cell, cost, allowed, now_ns);
}

ALWAYS_INLINE PyObject *
explained(const Store *store, const Cell *cell, i64 cost, bool allowed, bool charged, i64 now_ns)
{
    const Terms *terms = &store->terms;
    Decision *decision = (Decision *)new_decision();
    if (decision == NULL) {
        return NULL;
    }
    i64 used = fleet_used(terms, cell, now_ns), nominal = at_most(terms->nominal, cell->capacity);
    i64 ahead = charged && allowed ? 0 : cost, remaining = at_least(nominal - used, 0), left = at_least(cell->capacity - used, 0);
    decision->allowed = allowed;
    decision->limit = nominal;
    decision->remaining = allowed ? remaining : at_least(at_most(remaining, cost - 1), 0);
    decision->retry_after = allowed ? 0.0 : (double)retry_after_ns(terms, cell, cost, left, now_ns) / 1e9;
    decision->reset_after = (double)meter_fleet_reset_ns(terms, cell, now_ns) / 1e9;
    decision->staleness = cell->shard->alone ? 0.0
                          : is_heard(cell)   ? (double)at_least(now_ns - cell->heard_ns, 0) / 1e9
                                             : Py_HUGE_VAL;
    decision->binding = Py_NewRef(store->name);
    decision->over_quota = allowed && terms->soft && used + ahead > nominal;
    decision->certain = certainly(terms, cell, ahead, allowed, now_ns);
    return (PyObject *)decision;
}

PyObject *
explain(const Store *store, const Cell *cell, i64 cost, bool allowed, i64 now_ns)
{
    return explained(store, cell, cost, allowed, true, now_ns);
}

/* Explain the answer to a request that has not been charged. */
PyObject *
explain_uncharged(const Store *store, const Cell *cell, i64 cost, bool allowed, i64 now_ns)
{
    return explained(store, cell, cost, allowed, false, now_ns);
}

/* The fields of a key without an object that a meter may read; the compiler drops unused ones. */
static inline void
lone_meter(const Store *store, const Place *place, Cell *cell)
{
    const Terms *terms = &store->terms;
    cell->shard = store->lone_shard;
    cell->allowance = cell->capacity = terms->capacity;
    cell->used = place->lone.used;
    cell->previous = (i64)place->lone.level;
    cell->level = place->lone.level;
    cell->marked_ns = place->lone.marked_ns;
    cell->opened_ns = place->lone.until_ns - terms->window_ns;
    cell->heard_ns = -NEVER_NS;
    cell->others_current = cell->others_previous = cell->lag_ns = 0;
    cell->at_hub = false;
    cell->lows = Py_None;
}

bool
explains_at_once(const Store *store, const Place *place)
{
    if (form_of(place) == WHOLE) {
        return fits(store, place->cell);
    }
    Cell meter;
    lone_meter(store, place, &meter);
    return fits(store, &meter);
}

PyObject *
explain_at_once(const Store *store, const Place *place, i64 now_ns)
{
    if (form_of(place) == WHOLE) {
        return explain(store, place->cell, 0, true, now_ns);
    }
    Cell meter;
    lone_meter(store, place, &meter);
    return explained(store, &meter, 0, true, true, now_ns);
}
