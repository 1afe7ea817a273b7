/* The arithmetic of `kernel/algorithms/windows.py` and `bucket.py`, for the algorithms that C decides.
 *
 * Whole numbers are exact, as in Python: numbers that may exceed 64 bits are computed in 128 bits. A decision whose
 * numbers might exceed those is left to Python (`fits` in cells.c). Floating-point operations come in the same order as
 * in Python.
 */
#ifndef RECONVERGE_METER_H
#define RECONVERGE_METER_H

#include <math.h>

#include "native.h"

static inline i64
at_least(i64 value, i64 least)
{
    return value < least ? least : value;
}

static inline i64
at_most(i64 value, i64 most)
{
    return value > most ? most : value;
}

/* Division of whole numbers as Python has it, towards minus infinity; `by` is positive. */
static inline i128
floor_div(i128 amount, i64 by)
{
    if (LIKELY(amount == (i64)amount)) { /* 128 bits cost ten times as much */
        i64 small = (i64)amount, quotient = small / by;
        return quotient - (small % by < 0);
    }
    i128 quotient = amount / by;
    return quotient - (amount < quotient * by); /* a remainder would be a second division */
}

static inline i128
ceil_div(i128 amount, i64 by)
{
    return -floor_div(-amount, by);
}

static inline i128
ceil_div_wide(i128 amount, i128 by)
{
    i128 quotient = amount / by;
    return quotient + (amount > quotient * by);
}

static inline i64
closes_ns(const Terms *terms, const Cell *cell)
{
    return cell->opened_ns + terms->window_ns;
}

/* ------------------------------------------------------------------ sliding windows */

/* The nanoseconds of this window that are certainly still to come. */
static inline i64
left_ns(const Terms *terms, const Cell *cell, i64 now_ns)
{
    i64 passed_ns = now_ns - cell->opened_ns - cell->lag_ns;
    return terms->window_ns - at_most(at_least(passed_ns, 0), terms->window_ns);
}

/* The part of the last window's count that still counts, rounded up. */
static inline i64
faded(const Terms *terms, const Cell *cell, i64 amount, i64 now_ns)
{
    return amount == 0 ? 0 : (i64)ceil_div((i128)amount * left_ns(terms, cell, now_ns), terms->window_ns);
}

static inline i64
sliding_wait_ns(const Terms *terms, const Cell *cell, i64 current, i64 previous, i64 allowed, i64 now_ns)
{
    i64 left = left_ns(terms, cell, now_ns);
    if (current <= allowed) {
        i128 may_be_left = previous > 0 ? floor_div((i128)(allowed - current) * terms->window_ns, previous) : left;
        return left - may_be_left < 1 ? 1 : (i64)(left - may_be_left);
    }
    i128 may_be_left = current > 0 ? floor_div((i128)at_least(allowed, 0) * terms->window_ns, current) : 0;
    i128 wait = (i128)left + terms->window_ns - may_be_left;
    return wait < 1 ? 1 : (i64)wait;
}

/* The moment until which allowances may be used if the hub answers no batch before. */
static inline i64
lease_until_ns(const Terms *terms, const Cell *cell)
{
    return at_most(cell->shard->lease_until_ns, cell->shard->leased_ns + terms->lease_ns);
}

/* Whether the allowance counts charges of this window alone, beside the fading use of the window before. */
static inline bool
floats(const Terms *terms, const Cell *cell)
{
    return cell->at_hub && terms->kind == SLIDING;
}

/* Whether the node begins the key's next window with a base allowance. */
static inline bool
begins_with_base(const Terms *terms, const Cell *cell)
{
    return cell->base > 0 && terms->kind == FIXED && !cell->sealed;
}

/* Whether the base is a sealed share, with which no window begins while the node hears the hub. */
static inline bool
has_share(const Terms *terms, const Cell *cell)
{
    return cell->base > 0 && (terms->kind == SLIDING || cell->sealed) && !cell->shard->alone;
}

/* ------------------------------------------------------------------ buckets */

/* Whether this node keeps no allowance on the key, because the free part stays at the hub; fixed windows have bases. */
static inline bool
keeps_no_allowance(const Terms *terms, const Cell *cell)
{
    return cell->at_hub && terms->kind != FIXED;
}

/* Whether the hub keeps the level of a bucket; `level` is then the part of refunds that may have drained before. */
static inline bool
pooled(const Terms *terms, const Cell *cell)
{
    return cell->at_hub && terms->kind == BUCKET;
}

/* The charges to a bucket that `level` lacks; for one kept at the hub, all since the last answered report. */
static inline i64
beside_level(const Cell *cell)
{
    return cell->at_hub ? at_least(cell->charged + cell->used - cell->counted - cell->confirmed_current, 0) : cell->used;
}

/* The amount that drains per nanosecond, times the capacity. */
static inline i128
drain_rate(const Terms *terms, const Cell *cell)
{
    if (cell->at_hub) {
        return 0;
    }
    return (i128)terms->quota * (terms->merged_only ? terms->capacity : at_most(cell->allowance, terms->capacity));
}

/* How full the bucket is by then. */
static inline i128
bucket_fill(const Terms *terms, const Cell *cell, i64 now_ns)
{
    i128 level = cell->level + (i128)beside_level(cell) * terms->window_ns;
    i64 until_ns = terms->merged_only ? now_ns : at_most(now_ns, at_least(lease_until_ns(terms, cell), cell->marked_ns));
    if (until_ns > cell->marked_ns) {
        level -= floor_div((i128)(until_ns - cell->marked_ns) * drain_rate(terms, cell), terms->capacity);
    }
    return level < 0 ? 0 : level;
}

static inline void
bucket_settle(const Terms *terms, Cell *cell, i64 now_ns)
{
    i64 marked_ns = at_least(cell->marked_ns, now_ns);
    if (cell->at_hub || cell->credit) {
        i128 drained = (i128)terms->quota * (marked_ns - cell->marked_ns);
        i128 added = (cell->at_hub ? (i128)cell->used * terms->window_ns : 0) - drained;
        cell->credit = cell->credit + added < 0 ? 0 : cell->credit + added;
        if (cell->at_hub) { /* the hub drains refunds that it has not heard of: they move to `level` */
            i128 stored = cell->stored + added, before = cell->stored - drained; /* `used` was charged just now */
            i128 left = before + cell->late < 0 ? 0 : before + cell->late;
            i128 lost = cell->late > left ? cell->late - left : 0;
            cell->late -= lost;
            cell->level += lost;
            cell->stored = stored < 0 ? 0 : stored;
        }
    }
    if (!cell->at_hub) {
        cell->level = bucket_fill(terms, cell, now_ns);
    }
    cell->used = cell->counted = 0;
    cell->marked_ns = marked_ns;
}

/* ------------------------------------------------------------------ whichever it is */

static inline i64
meter_used(const Terms *terms, const Cell *cell, i64 now_ns)
{
    switch (terms->kind) {
    case SLIDING:
        return cell->used + faded(terms, cell, cell->previous, now_ns);
    case BUCKET:
        return (i64)ceil_div(bucket_fill(terms, cell, now_ns), terms->window_ns);
    default:
        return cell->used;
    }
}

static inline i64
meter_spare(const Terms *terms, const Cell *cell, i64 allowance, i64 now_ns)
{
    switch (terms->kind) {
    case SLIDING:
        return allowance - cell->used - (cell->at_hub ? 0 : faded(terms, cell, cell->previous, now_ns));
    case BUCKET:
        return (i64)floor_div((i128)allowance * terms->window_ns - cell->level, terms->window_ns) - beside_level(cell);
    default:
        return allowance - cell->used;
    }
}

static inline double
meter_others(const Terms *terms, const Cell *cell, i64 now_ns)
{
    switch (terms->kind) {
    case SLIDING:
        return (double)cell->others_current +
               (double)cell->others_previous * ((double)left_ns(terms, cell, now_ns) / (double)terms->window_ns);
    case BUCKET:
        if (terms->merged_only) {
            return 0.0;
        } else {
            i64 kept = terms->capacity - (cell->at_hub ? 0 : cell->allowance);
            double drain = (double)terms->quota * (double)kept / (double)terms->capacity / (double)terms->window_ns;
            double others = (double)cell->others_current / 1000 - drain * (double)(now_ns - cell->heard_ns);
            return others > 0.0 ? others : 0.0;
        }
    default:
        return (double)cell->others_current;
    }
}

/* A very slow bucket needs more nanoseconds than fit into 64 bits. */
static inline i128
meter_wait_ns(const Terms *terms, const Cell *cell, i64 allowance, i64 cost, i64 now_ns)
{
    switch (terms->kind) {
    case SLIDING:
        return sliding_wait_ns(terms, cell, cell->used, cell->previous, allowance - cost, now_ns);
    case BUCKET: {
        i128 excess = cell->level + (i128)(cell->used + cost - allowance) * terms->window_ns;
        i128 rate = drain_rate(terms, cell);
        if (rate <= 0) {
            return NEVER_NS;
        }
        i128 wait = ceil_div_wide(excess * terms->capacity, rate);
        return wait < 1 ? 1 : wait;
    }
    default:
        return at_least(closes_ns(terms, cell) - now_ns, 1);
    }
}

/* How full the buckets of all nodes are together, as far as this one knows. */
static inline i128
fleet_fill(const Terms *terms, const Cell *cell, i64 now_ns)
{
    double others = rint(meter_others(terms, cell, now_ns) * (double)terms->window_ns);
    return bucket_fill(terms, cell, now_ns) + (i128)others;
}

static inline i128
meter_fleet_wait_ns(const Terms *terms, const Cell *cell, i64 cost, i64 now_ns)
{
    switch (terms->kind) {
    case SLIDING:
        return sliding_wait_ns(terms, cell, cell->used + cell->others_current, cell->previous + cell->others_previous,
                               cell->capacity - cost, now_ns);
    case BUCKET: {
        i128 excess = fleet_fill(terms, cell, now_ns) + (i128)(cost - cell->capacity) * terms->window_ns;
        i128 wait = ceil_div(excess, terms->quota);
        return wait < 1 ? 1 : wait;
    }
    default:
        return at_least(closes_ns(terms, cell) - now_ns, 1);
    }
}

/* For how long `cost` certainly does not fit below the capacity, with the use of all nodes: for a bucket, beside its
 * own level, and beside the level that all nodes have reported. */
static inline i128
meter_fleet_earliest_ns(const Terms *terms, const Cell *cell, i64 cost, i64 now_ns)
{
    if (terms->kind == BUCKET) {
        i128 beyond = (i128)(cost - cell->capacity) * terms->window_ns;
        i128 own = floor_div(bucket_fill(terms, cell, now_ns) + beyond, terms->quota);
        i128 merged = floor_div((i128)cell->others_previous * terms->window_ns, 1000) + beyond;
        if (cell->heard_ns > -NEVER_NS) {
            merged -= (i128)terms->quota * (now_ns - cell->heard_ns);
        }
        merged = floor_div(merged, terms->quota) - cell->lag_ns;
        own = own < merged ? merged : own;
        return own < 0 ? 0 : own;
    }
    if (terms->kind == FIXED && cell->used + cell->others_current + cost <= cell->capacity) {
        return 0;
    }
    return meter_fleet_wait_ns(terms, cell, cost, now_ns) - cell->lag_ns;
}

static inline i128
meter_fleet_reset_ns(const Terms *terms, const Cell *cell, i64 now_ns)
{
    bool in_use = cell->used + cell->others_current > 0;
    switch (terms->kind) {
    case SLIDING:
        if (in_use) {
            return left_ns(terms, cell, now_ns) + terms->window_ns;
        }
        return cell->previous + cell->others_previous > 0 ? left_ns(terms, cell, now_ns) : 0;
    case BUCKET:
        return ceil_div(fleet_fill(terms, cell, now_ns), terms->quota);
    default:
        return in_use ? at_least(closes_ns(terms, cell) - now_ns, 1) : 0;
    }
}

/* The moment until which the fast path may add charges. */
static inline i64
meter_until_ns(const Terms *terms, const Cell *cell)
{
    if (terms->kind != BUCKET) {
        return NEVER_NS;
    }
    if (cell->at_hub) {
        return NEVER_NS;
    }
    i128 rate = drain_rate(terms, cell);
    i128 dry = rate > 0 ? cell->level * terms->capacity / rate : 0;
    return dry > NEVER_NS - cell->marked_ns ? NEVER_NS : cell->marked_ns + (i64)dry;
}

#endif
