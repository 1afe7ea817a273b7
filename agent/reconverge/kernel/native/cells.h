/* Functions that move cells into the window of the hub's clock: the parts of `kernel/algorithms/edges.py` that every
 * decision and every report needs. */
#ifndef RECONVERGE_CELLS_H
#define RECONVERGE_CELLS_H

#include "meter.h"

#define SOLO_REFRESH_NS SECOND_NS
#define LOW_WATER 0.6
#define DEMAND_MAX 8000000000000LL

bool fits(const Store *store, const Cell *cell); /* whether all of its numbers can be reckoned with here */
void measure(Store *store, Cell *cell);
int enter_window(Store *store, Cell *cell, i64 now_ns);
int advance(Store *store, Cell *cell, i64 now_ns); /* -1 if the time is missing */
bool needs_time(const Shard *shard, i64 now_ns); /* whether a node without a hub has to compare its two clocks */
int refresh_time(Store *store, i64 now_ns);      /* does so, in Python: not with the lock held. -1 with an error */
void set_until(const Store *store, Cell *cell, i64 now_ns);
int mark_dirty(Store *store, Cell *cell);
int call_for_exchange(Store *store, Cell *cell, i64 now_ns);
int request_early(Store *store, Cell *cell, i64 when_ns);
void stay_silent(Store *store, const Cell *cell, i64 now_ns);

#define AHEAD 8 /* how many cells are fetched at once when cells are worked on in turn */

/* Have the processor fetch a cell before it is its turn. */
static inline void
fetch_cell(const Cell *cell)
{
    for (size_t line = 0; line < sizeof(Cell); line += 64) {
        __builtin_prefetch((const char *)cell + line, 1);
    }
}

static inline i64
usable_allowance(const Terms *terms, const Cell *cell, i64 now_ns)
{
    return now_ns < lease_until_ns(terms, cell) || terms->keeps_allowances ? cell->allowance : 0;
}

static inline i64
fleet_used(const Terms *terms, const Cell *cell, i64 now_ns)
{
    return meter_used(terms, cell, now_ns) + (i64)ceil(meter_others(terms, cell, now_ns));
}

static inline i64
low_water_for(i64 headroom)
{
    return at_least((i64)ceil(LOW_WATER * (double)headroom), 1);
}

#define BASE_MARGIN 1.5
#define BASE_SHARE 0.8
#define REQUESTS_MIN 8

/* Whether the limit has silences, and the key has enough requests for each node, none of which waits. */
static inline bool
may_be_silent(const Terms *terms, const Cell *cell)
{
    return terms->silence_ns != 0 && !cell->at_hub && cell->waiters == 0 && cell->capacity >= REQUESTS_MIN * cell->nodes;
}

/* Whether the node begins the cell's next window with enough, if all nodes need `needs` together. */
static inline bool
begins_well(const Terms *terms, const Cell *cell, double needs)
{
    if (terms->kind != FIXED || terms->small_allowances) {
        return true;
    }
    double share = needs > 0 ? (double)cell->need_milli / 1000 / needs : 0.0, window_s = (double)terms->window_ns / 1e9;
    double demanded = BASE_MARGIN * cell->demand * window_s, most = BASE_SHARE * (double)cell->capacity * share;
    return cell->base >= 1 && (double)cell->base >= (demanded < most ? demanded : most);
}

/* Whether the cell's fixed window is used up, as of an answer about that window, and the next one begins well. */
static inline bool
is_used_up(const Terms *terms, const Cell *cell)
{
    if (terms->kind != FIXED || (double)cell->capacity - cell->fleet_used >= 1 || !may_be_silent(terms, cell)) {
        return false;
    }
    double need = (double)cell->need_milli / 1000, needs = cell->fleet_needs > need ? cell->fleet_needs : need;
    return begins_well(terms, cell, needs);
}

/* The headroom below which a comfortable cell is reported: see `reporting/silence.py`. */
static inline i64
speaks_below(const Cell *cell)
{
    return cell->low_water + cell->low_water * 11 / 24;
}

static inline bool
is_heard(const Cell *cell)
{
    return cell->heard_ns > -NEVER_NS;
}

#endif
