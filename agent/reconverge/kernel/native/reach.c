/* Computes how far past its allowance a policy lets this node go: `reconverge.policies`, for the policies that C has,
 * and `view_of` in `kernel/table/slow_path.py`.
 *
 * This runs for each refused request, so it is a hot path while a limit is used up. The amounts are floating point in
 * Python, too, and the operations come in the same order.
 */
#include "reach.h"

#define FRESH_INTERVALS 3
#define HOT_SHARE 0.01
#define FAR ((double)((i64)1 << 62))

/* The facts by which a policy decides: see `View`. */
typedef struct {
    i64 cost, allowance, passed_ns, staleness_ns;
    double heard, others;
} View;

static void
look(const Terms *terms, const Cell *cell, i64 allowance, i64 cost, i64 now_ns, View *view)
{
    i64 passed_ns = at_most(at_least(now_ns - cell->opened_ns, 0), terms->window_ns);
    i64 staleness_ns = at_least(now_ns - cell->heard_ns, 0), horizon_ns = terms->interval_ns + cell->shard->round_trip_ns;
    i64 unheard_ns = staleness_ns + horizon_ns;
    double heard = meter_others(terms, cell, now_ns), faster = cell->fleet_demand - cell->demand;
    if (staleness_ns <= 3 * terms->interval_ns) {
        unheard_ns = at_most(unheard_ns, 3 * horizon_ns);
    }
    if (terms->kind == FIXED) {
        unheard_ns = at_most(unheard_ns, passed_ns);
        heard += (double)cell->silent;
    }
    double meanwhile = (faster > 0.0 ? faster : 0.0) * (double)unheard_ns / 1e9;
    *view = (View){.cost = cost,
                   .allowance = allowance,
                   .passed_ns = passed_ns,
                   .staleness_ns = staleness_ns,
                   .heard = heard,
                   .others = heard + meanwhile};
}

/* Whether the demand is likely to fit into the quota. */
static bool
is_calm(const Terms *terms, const Cell *cell, const View *view, i64 now_ns)
{
    if (cell->last_demand > terms->quota) {
        return false;
    }
    bool aligned = terms->kind == FIXED;
    double demand = cell->demand > cell->fleet_demand ? cell->demand : cell->fleet_demand;
    double expected = demand * (double)(aligned ? terms->window_ns - view->passed_ns : terms->window_ns) / 1e9;
    double used = aligned ? (double)meter_used(terms, cell, now_ns) + view->others : 0.0;
    return used + expected <= (double)terms->quota;
}

/* One request, or a hundredth of the node's share. */
static i64
hot_step(const Terms *terms, const Cell *cell, const View *view)
{
    i64 settled_ns = at_most(terms->interval_ns, terms->window_ns) / 2;
    if (terms->kind != FIXED || view->passed_ns - view->staleness_ns < settled_ns) {
        return 0;
    }
    double share = HOT_SHARE * (double)cell->capacity / (double)at_least(cell->nodes, 1);
    return at_least(at_most(cell->overdraft, (i64)floor(share)), view->cost);
}

/* The free capacity, rounded down. The fleet's use may exceed the capacity by any amount; all numbers below zero have
 * the same effect when they are compared with an allowance. */
static i64
left_beside(const Cell *cell, double others)
{
    double left = floor((double)cell->capacity - others);
    return left > -FAR ? (i64)left : -NEVER_NS;
}

static i64
balanced(const Terms *terms, const Cell *cell, const View *view, i64 now_ns)
{
    if (view->staleness_ns > FRESH_INTERVALS * terms->interval_ns) {
        return view->allowance;
    }
    bool calm = is_calm(terms, cell, view, now_ns);
    i64 step = calm ? at_least(cell->overdraft, view->cost) : hot_step(terms, cell, view);
    return at_most(view->allowance + step, left_beside(cell, view->others));
}

static i64
available(const Terms *terms, const Cell *cell, const View *view, i64 now_ns)
{
    i64 left = left_beside(cell, view->others);
    if (is_calm(terms, cell, view, now_ns)) {
        return at_least(left, view->allowance);
    }
    return at_least(at_most(view->allowance + hot_step(terms, cell, view), left), view->allowance);
}

i64
cold_reach(const Store *store, Cell *cell, i64 cost, i64 now_ns)
{
    const Terms *terms = &store->terms;
    if (UNLIKELY(cell->doubted)) {
        cell->doubted = evicted_recall(store->evicted, cell->key, now_ns);
        if (cell->doubted) {
            return 0;
        }
    }
    if (terms->cold_allowance >= 0) {
        return (i64)(terms->cold_allowance * (double)at_least(cell->capacity - terms->withheld, 0));
    }
    i64 room = at_least(at_most(cell->capacity, terms->own_part) - terms->withheld, 0), nodes = cell->shard->nodes;
    return nodes > 0 ? at_least((room + nodes - 1) / nodes, at_most(cost, room)) : room;
}

/* While the hub is away: the quota, less what others are known to have used. */
i64
away_reach(const Terms *terms, const Cell *cell, i64 cost, i64 now_ns)
{
    View view;
    look(terms, cell, 0, cost, now_ns, &view);
    return left_beside(cell, view.heard) - terms->withheld;
}

i64
policy_reach(const Terms *terms, const Cell *cell, i64 allowance, i64 cost, i64 now_ns)
{
    View view;
    if (cell->at_hub || terms->policy == STRICT) {
        return allowance;
    }
    look(terms, cell, allowance, cost, now_ns, &view);
    switch (terms->policy) {
    case BALANCED:
        return balanced(terms, cell, &view, now_ns);
    case AVAILABLE:
        return available(terms, cell, &view, now_ns);
    default:
        return left_beside(cell, view.heard); /* naive */
    }
}
