/* Makes the reports of cells, and stores the hub's answers in them: `kernel/reporting/cell_reports.py`, for the limits
 * that C decides. */
#include "cells.h"

#define NEED_MARGIN 1.5
#define SLACK_KEPT 0.5
#define SLACK_FADING 0.6
#define SLACK_FADING_ASKED 0.9
#define SLACK_ASKED 0.0
#define PLENTY 0.5
#define DEMAND_ARRIVALS 8.0
#define DEMAND_FAINT 0.3
#define BASE_SLACK 0.8
#define BUCKET_MARGIN 1.1
#define SURPLUS_SHARE 0.03
#define TIGHT_SHARE 0.25
#define ALONE_INTERVALS_MAX 32
#define SURPLUS_CHECKS 8
#define SURPLUS_AFTER 3
#define ROOM_INTERVALS_MAX 16
#define HEADROOM_FRACTION 0.04
#define OVERDRAFT_FRACTION 0.01
#define NEEDS_MIN 4
#define FREE_SHARE 0.25
#define GRID_PARTS 8

static inline Store *
store_of(const Cell *cell)
{
    return (Store *)cell->store;
}

static inline const Terms *
terms_of(const Cell *cell)
{
    return &store_of(cell)->terms;
}

bool
known_here(const Cell *cell)
{
    return cell->store != NULL && terms_of(cell)->plain && fits(store_of(cell), cell);
}

static inline double
larger(double one, double other)
{
    return other > one ? other : one;
}

static inline double
smaller(double one, double other)
{
    return other < one ? other : one;
}

/* ------------------------------------------------------------------ the need, and the allowance to give back */

/* An exponentially weighted mean of the cost asked for per second, over about eight requests. */
static void
measure_demand(const Terms *terms, Cell *cell, i64 now_ns)
{
    double elapsed_s = (double)(now_ns - cell->measured_ns) / 1e9;
    double interval_s = (double)terms->interval_ns / 1e9, window_s = (double)terms->window_ns / 1e9;
    i64 arrived = cell->arrived;
    cell->arrived = 0;
    cell->measured_ns = now_ns;
    if (arrived != 0) {
        cell->asked = at_most(cell->asked + arrived, DEMAND_MAX);
        cell->window_demand = at_most(cell->window_demand + arrived, DEMAND_MAX);
        cell->touched_ns = now_ns;
    }
    if (cell->demand == 0.0) {
        cell->demand = (double)arrived / larger(elapsed_s, interval_s);
    } else if (elapsed_s > 0) {
        double shortest_s = smaller(interval_s, 0.1 * window_s);
        double memory_s = smaller(larger(DEMAND_ARRIVALS / cell->demand, shortest_s), window_s);
        cell->demand += (1.0 - exp(-elapsed_s / memory_s)) * ((double)arrived / elapsed_s - cell->demand);
    }
    cell->demand = smaller(cell->demand, (double)DEMAND_MAX);
}

/* The likely demand on this node until the next exchange has been answered, with a margin. */
static double
expected(const Terms *terms, const Cell *cell)
{
    return NEED_MARGIN * cell->demand * (double)(terms->interval_ns + cell->shard->round_trip_ns) / 1e9;
}

/* The use that this node expects until the next exchange has been answered. */
static double
need_of(const Terms *terms, const Cell *cell, i64 used, bool early)
{
    double window_s = (double)terms->window_ns / 1e9;
    if (terms->merged_only ||
        (cell->demand * window_s <= DEMAND_FAINT && cell->asked == 0 && cell->waiters == 0)) {
        return 0.0;
    }
    bool calm = cell->fleet_demand * window_s <= (double)terms->quota && cell->last_demand <= terms->quota;
    double need = expected(terms, cell) + (double)cell->waiting + (calm ? 1.0 : 0.0);
    if (early) {
        need = larger(need, 2.0 * (double)cell->asked);
    }
    if (terms->kind == BUCKET && !terms->small_allowances) {
        /* To drain this demand the node needs the same part of the capacity. Where allowances are kept small, the
         * allowance for use that has not drained yet drains as much. */
        double waiting = (double)cell->waiting * 1e9 / (double)(terms->interval_ns + cell->shard->round_trip_ns);
        double demand = cell->demand + waiting;
        double carrying = demand * window_s * (double)cell->capacity / (double)terms->quota;
        need = larger(need, BUCKET_MARGIN * carrying - (double)used);
    }
    return smaller(larger(larger(need, (double)cell->ask), (double)cell->head_cost), (double)at_least(cell->capacity, 0));
}

/* The part of the free capacity that a node may hold unused where allowances are kept small: see hub/headroom.py. */
static double
headroom_max(double need, double left)
{
    return larger(larger(need, 1.0), HEADROOM_FRACTION * left);
}

/* Whether requests about this key ask the hub in doubt: the last one did, or one not long before. */
static bool
asks(const Terms *terms, const Cell *cell)
{
    return cell->touched_ns - cell->asking_ns < 2 * terms->idle_ns;
}

/* The part that a node keeps of the capacity that no node needs: see hub/headroom.py. */
static double
slack_kept(const Terms *terms, const Cell *cell, double left, double needs)
{
    bool plenty = terms->silence_ns != 0 && left - needs >= PLENTY * (double)cell->capacity;
    if (terms->kind == FIXED) {
        return asks(terms, cell) && !plenty ? SLACK_ASKED : SLACK_KEPT;
    }
    return asks(terms, cell) && !plenty ? SLACK_FADING_ASKED : SLACK_FADING;
}

/* The headroom that the cell keeps: this node's fair part of the free capacity at the last answer. */
static double
kept(const Terms *terms, const Cell *cell, double need, double needs)
{
    double left = larger(0.0, (double)cell->capacity - cell->fleet_used);
    /* A node that is the only one keeps its part also when it needs nothing: a request after a pause finds it. */
    double share = cell->shard->nodes == 1 ? 1.0 : needs > 0 ? need / needs : 0.0;
    if (left < needs) {
        return left * share;
    }
    double all = need + slack_kept(terms, cell, left, needs) * (left - needs) * share;
    return terms->small_allowances ? smaller(all, headroom_max(need, left)) : all;
}

/* Give back the allowance beyond this node's fair part of the free capacity at the last answer. */
static void
lower_allowances(const Terms *terms, Cell *cell, i64 used, double need)
{
    double needs = larger(cell->fleet_needs, need), share = needs > 0 ? need / needs : 0.0;
    i64 headroom = cell->allowance - used;
    if (cell->at_hub) {
        cell->allowance = at_most(cell->allowance, used);
    } else {
        i64 surplus = (i64)floor((double)headroom - kept(terms, cell, need, needs));
        if (cell->reserved > 0 && 0 < headroom && headroom < cell->ask) {
            /* Another node's ask is older, and this node holds too little for its own. */
            surplus = at_least(surplus, at_most(headroom, cell->reserved));
        }
        cell->allowance -= at_least(surplus, 0);
    }
    double start = (double)cell->capacity * share;
    if (terms->small_allowances) {
        start = smaller(start, headroom_max(need, (double)cell->capacity));
    }
    if (cell->sealed) {
        cell->base = asks(terms, cell) ? cell->base : 0;
    } else if (terms->kind == FIXED && needs > 0 && start < BASE_SLACK * (double)cell->base) {
        cell->base = (i64)ceil(start);
    }
    if (cell->overdraft > 0) {
        i64 overdrafts = (i64)floor_div((i128)cell->capacity * terms->overshoot_milli, 1000);
        i64 part = (i64)floor_div(overdrafts, cell->nodes);
        if (terms->small_allowances) {
            part = at_most(part, at_least((i64)floor(OVERDRAFT_FRACTION * (double)cell->capacity), 1));
        }
        /* The part in use stays, as the hub would grant it to another node as well. */
        cell->overdraft = at_most(cell->overdraft, at_least(part, used - cell->allowance));
    }
}

/* The cost of all requests; for a key about which requests in doubt ask the hub, the cost that waits for its answer. */
static i64
said_asked(const Terms *terms, const Cell *cell, bool hits_only)
{
    if (asks(terms, cell) || (cell->sealed && cell->base > 0)) {
        i64 waiting = hits_only && cell->waiting == 0 ? cell->ask : cell->waiting;
        bool floats = terms->kind == FIXED ? cell->sealed || cell->base == 0 : pooled(terms, cell);
        return ASKS + (floats ? FLOATS : 0) + at_most(waiting, WAITING_MAX);
    }
    return at_most(cell->asked, FORGOTTEN - 1);
}

/* Move the charges that the hub may not have counted back to this node's level, and drop the allowance. */
static void
leave_hub(const Terms *terms, Cell *cell)
{
    i128 beside = (i128)beside_level(cell) * terms->window_ns;
    cell->level += beside;
    cell->credit = cell->credit > beside ? cell->credit - beside : 0;
    cell->at_hub = false;
    cell->stored = cell->late = 0;
    cell->allowance = 0;
    cell->used = cell->counted = 0;
}

int
report_cell(Cell *cell, i64 now_ns, bool in_touch, Report *report)
{
    Store *store = store_of(cell);
    const Terms *terms = &store->terms;
    if (advance(store, cell, now_ns) < 0) {
        return -1;
    }
    measure(store, cell);
    if (!terms->keeps_allowances && now_ns >= lease_until_ns(terms, cell)) {
        cell->allowance = cell->base = cell->overdraft = 0;
    }
    bool early = now_ns - cell->measured_ns < terms->interval_ns, hits_only = cell->asking_ns < cell->reported_ns;
    /* Before it is first checked whether requests ask, so that the whole report goes by the same moment. */
    measure_demand(terms, cell, now_ns);
    if (cell->waiters) {
        cell->touched_ns = now_ns; /* a waiter goes on asking */
    }
    if (pooled(terms, cell) && (!asks(terms, cell) || now_ns - cell->heard_ns >= 2 * terms->idle_ns)) {
        leave_hub(terms, cell);
    }
    i64 used = meter_used(terms, cell, now_ns);
    double need = 0.0;
    bool sealed = has_share(terms, cell) && !in_touch; /* a share outlasts pauses while the hub is away */
    if (used <= 0 && now_ns - cell->touched_ns >= 2 * terms->idle_ns && !sealed) {
        cell->allowance = cell->base = cell->overdraft = 0;
        if (!cell->held && !cell->unconfirmed) {
            return 0;
        }
    } else {
        need = need_of(terms, cell, used, early);
        if (keeps_no_allowance(terms, cell)) { /* also when cut off: only grants since the last report count */
            cell->allowance = at_most(cell->allowance, terms->kind == BUCKET ? used : cell->used);
        }
        if (in_touch) {
            lower_allowances(terms, cell, used, need);
        }
    }
    i64 allowance = keeps_no_allowance(terms, cell) ? 0 : cell->allowance;
    cell->need_milli = (i64)ceil(need * 1000);
    cell->held = cell->held || need > 0 || allowance > 0 || cell->base > 0;
    cell->dirty = 0;
    cell->urgent = cell->comfortable = false;
    cell->early_ns = NEVER_NS;
    agenda_forget(cell);
    cell->room = -1; /* so that the next charge is noticed */
    cell->reported_ns = now_ns;
    cell->wanted = cell->waiting ? cell->charged + cell->waiting : 0;
    bool bucket = terms->kind == BUCKET;
    if (pooled(terms, cell)) {
        cell->share = (i64)ceil_div(1000 * cell->late, terms->window_ns);
    }
    /* All fields, as the compiler would first clear the whole struct for omitted ones. */
    *report = (Report){
        .limit = 0,
        .epoch = cell->epoch,
        .current = bucket ? cell->charged : cell->used,
        .previous = bucket ? (i64)ceil_div(1000 * cell->level, terms->window_ns) : cell->previous,
        .allowance = allowance,
        .base = cell->base,
        .overdraft = cell->overdraft,
        .need_milli = cell->need_milli,
        .ask = at_least(cell->ask, cell->head_cost),
        .asked = said_asked(terms, cell, hits_only),
        .demand_milli = (i64)(cell->demand * 1000),
        .window_demand = cell->window_demand,
        .reset_us = cell->reset_us,
    };
    cell->asked = cell->ask = 0;
    return 1;
}

/* ------------------------------------------------------------------ the answer */

/* Compute the use of the other nodes: the hub's total, less this node's own reported part. */
static void
hear_of_others(const Terms *terms, Cell *cell, const Report *report, const Answer *answer, i64 heard_ns, i64 now_ns)
{
    bool counted = report->reset_us >= answer->reset_us;
    if (terms->kind == BUCKET) {
        bool complete = report->asked >= ASKS + FLOATS;
        if (complete || cell->at_hub) { /* the hub's own bucket has the reported charges */
            i128 left = complete ? cell->level - floor_div((i128)report->previous * terms->window_ns, 1000) : 0;
            i64 since = cell->at_hub ? 0 : at_least(cell->charged - report->current, 0);
            i128 own = cell->credit + (complete ? -(i128)since * terms->window_ns : cell->level);
            cell->credit = own < 0 ? 0 : own;
            cell->level = (left < 0 ? 0 : left) + (i128)since * terms->window_ns;
            cell->stored = cell->at_hub ? cell->stored : 0;
            i128 late = cell->late - floor_div((i128)cell->share * terms->window_ns, 1000);
            cell->late = cell->at_hub && late > 0 ? late : 0;
            counted = false;
        }
        cell->others_current = at_least(answer->previous - (counted ? report->previous : 0), 0);
        cell->others_previous = answer->current;
        cell->fleet_used = (double)answer->previous / 1000 + (double)answer->silent;
        if (terms->merged_only) {
            i128 drained = (i128)terms->quota * (now_ns - heard_ns);
            i128 merged = floor_div((i128)answer->current * terms->window_ns, 1000) - drained;
            cell->level = (merged < 0 ? 0 : merged) + (i128)(cell->charged - report->current) * terms->window_ns;
        }
        return;
    }
    i64 own_current = counted && report->epoch == answer->epoch ? report->current : 0;
    if (answer->epoch == cell->epoch) {
        cell->others_current = at_least(answer->current - own_current, 0);
        cell->fleet_used = (double)(answer->current + answer->silent);
        cell->silent = answer->silent;
        if (terms->kind != FIXED) {
            i64 own_previous = counted ? report->previous : 0;
            if (report->epoch != answer->epoch) {
                own_previous = counted && report->epoch == answer->epoch - 1 ? report->current : 0;
            }
            cell->others_previous = at_least(answer->previous - own_previous, 0);
            i64 left = at_most(at_least(cell->opened_ns + terms->window_ns - heard_ns, 0), terms->window_ns);
            cell->fleet_used += (double)answer->previous * ((double)left / (double)terms->window_ns);
        }
    } else if (answer->epoch == cell->epoch - 1 && terms->kind != FIXED) {
        cell->others_previous = at_least(answer->current - own_current, 0);
    }
}

/* Store the demand on all nodes, by which the policy judges whether the key is calm. */
static void
hear_of_demand(Cell *cell, const Answer *answer)
{
    cell->nodes = at_least(answer->nodes, 1);
    cell->fleet_demand = (double)answer->demand_milli / 1000;
    if (answer->epoch == cell->epoch) {
        cell->free = answer->free;
        cell->reserved = answer->reserved;
        cell->fleet_needs = (double)answer->needs_milli / 1000;
        cell->fleet_window = answer->window_demand;
        cell->last_demand = answer->last_demand;
    } else if (answer->epoch == cell->epoch - 1) {
        cell->last_demand = at_least(cell->last_demand, answer->window_demand);
    }
}

static double
surplus_min(const Cell *cell)
{
    return larger(2.0, SURPLUS_SHARE * (double)cell->capacity);
}

/* Schedule the next look at this cell, in case no request for it comes before. */
static int
promise_follow_up(const Terms *terms, Cell *cell, i64 headroom, i64 now_ns)
{
    i64 interval_ns = terms->interval_ns, leaves_ns = cell->touched_ns + 2 * terms->idle_ns, due_ns;
    bool tight = headroom > 0 && (double)cell->free < TIGHT_SHARE * (double)cell->capacity;
    bool alone = cell->fleet_needs <= (double)cell->need_milli / 1000;
    Agenda *agenda = cell->shard->agenda;
    if (cell->at_hub && headroom > 0) {
        /* A grant for a request that did not wait is kept until the next exchange, for a request like it. */
        i64 kept_ns = cell->waiters ? terms->interval_min_ns : interval_ns;
        return agenda_promise(agenda, cell, at_least(cell->reported_ns + kept_ns, now_ns));
    }
    if (tight && !alone && (double)headroom >= surplus_min(cell)) {
        return agenda_promise(agenda, cell, at_least(cell->reported_ns + interval_ns / SURPLUS_AFTER, now_ns));
    }
    if (!cell->held) {
        due_ns = at_least(leaves_ns, now_ns);
    } else if (tight && !alone) {
        due_ns = cell->reported_ns + interval_ns;
    } else {
        i64 quiet_ns = now_ns - cell->touched_ns;
        if (cell->at_hub && !begins_with_base(terms, cell)) {
            quiet_ns = at_least(quiet_ns, terms->idle_ns); /* no allowance is held, and use fades at the hub as well */
        } else if (tight) {
            quiet_ns = at_most(quiet_ns, ALONE_INTERVALS_MAX * interval_ns);
        }
        due_ns = now_ns + at_least(at_most(quiet_ns, leaves_ns - now_ns), interval_ns);
    }
    if (begins_with_base(terms, cell) && asks(terms, cell)) {
        /* The base allowance of the next window goes back if no request has come, as other nodes ask for it. */
        due_ns = at_most(due_ns, at_least(closes_ns(terms, cell), now_ns) + interval_ns);
    }
    /* The moments are on a grid, so that cells share their exchanges. */
    return agenda_promise(agenda, cell, (i64)ceil_div(due_ns, interval_ns) * interval_ns);
}

/* Whether no node lacks anything of this key, nor will before the longest silence is over: `reporting/silence.py`. */
static bool
is_comfortable(const Terms *terms, const Cell *cell, i64 headroom)
{
    if (!may_be_silent(terms, cell) || cell->ask != 0 || cell->reserved != 0 || !cell->held) {
        return false;
    }
    double need = (double)cell->need_milli / 1000, soon = expected(terms, cell), capacity = (double)cell->capacity;
    if ((double)headroom < larger(need, NEEDS_MIN * (soon + 1))) {
        return false;
    }
    double left = capacity - cell->fleet_used;
    if ((double)cell->free < FREE_SHARE * left) {
        return false;
    }
    double needs = larger(cell->fleet_needs, need);
    if (!begins_well(terms, cell, needs)) {
        return false;
    }
    double others = NEED_MARGIN * larger(0.0, cell->fleet_demand - cell->demand) * ((double)terms->interval_ns / 1e9);
    return left >= larger(NEEDS_MIN * (soon + others), needs + FREE_SHARE * capacity);
}

/* Lets the cell be silent from this answer on, if no node needs news of it; returns whether it does. */
static bool
falls_silent(const Terms *terms, Cell *cell, const Report *report, i64 headroom, i64 now_ns)
{
    if (cell->fresh || cell->urgent || cell->leaving || cell->unconfirmed || cell->reset_us != report->reset_us) {
        return false;
    }
    if (is_comfortable(terms, cell, headroom)) {
        /* A key that has had no request for longer is looked at later, so it reports its next charge. */
        cell->comfortable = now_ns - cell->touched_ns <= terms->silence_ns;
        if (cell->comfortable) {
            cell->dirty = 0; /* also if it was charged while the batch was under way */
        }
        return true;
    }
    return is_used_up(terms, cell);
}

/* When a silent cell is looked at again. */
static i64
looks_ns(const Terms *terms, const Cell *cell, i64 now_ns)
{
    i64 leaves_ns = cell->touched_ns + 2 * terms->idle_ns;
    i64 due_ns = now_ns + at_least(at_most(now_ns - cell->touched_ns, leaves_ns - now_ns), terms->silence_ns);
    if (begins_with_base(terms, cell) && asks(terms, cell)) {
        due_ns = at_most(due_ns, at_least(closes_ns(terms, cell), now_ns) + terms->interval_ns);
    }
    i64 grid_ns = at_least(terms->silence_ns / GRID_PARTS, terms->interval_ns), phase_ns = terms->phase % grid_ns;
    return (i64)ceil_div(due_ns - phase_ns, grid_ns) * grid_ns + phase_ns;
}

/* Set the cell's own meter to zero; charges before `reset_us` do not count any more. */
static void
forget(Store *store, Cell *cell, i64 reset_us, i64 now_ns)
{
    measure(store, cell);
    if (floats(&store->terms, cell)) {
        cell->allowance = 0; /* the hub granted it beside the use that is forgotten now */
    }
    cell->reset_us = reset_us;
    /* Use of windows that began after the reset stays: a sealed share may have been used meanwhile. */
    i128 begins_ns = (i128)cell->epoch * store->terms.window_ns, reset_ns = (i128)reset_us * 1000;
    bool kept = (store->terms.kind == SLIDING || has_share(&store->terms, cell)) && !cell->shard->alone;
    cell->used = cell->counted = kept && reset_ns <= begins_ns ? cell->used : 0;
    cell->previous = kept && reset_ns <= begins_ns - store->terms.window_ns ? cell->previous : 0;
    cell->level = 0;
    cell->credit = 0;
    if (cell->at_hub) {
        cell->stored = cell->late = 0;
    }
    cell->confirmed_epoch = -1;
    cell->confirmed_current = store->terms.kind == BUCKET ? cell->charged : 0;
    cell->confirmed_previous = 0;
    set_until(store, cell, now_ns);
    cell->room = -1; /* no decision uses it before the whole answer is applied */
}

/* The hub has no room for this key and stores nothing of it: nothing else changes, and the node asks again later. */
static int
wait_for_room(const Store *store, Cell *cell, i64 now_ns)
{
    i64 interval_ns = store->terms.interval_ns;
    cell->shard->not_taken++;
    if (pooled(&store->terms, cell)) {
        leave_hub(&store->terms, cell);
    }
    cell->allowance = cell->base = cell->overdraft = 0;
    cell->held = false;
    cell->confirmed_epoch = -1;
    cell->confirmed_current = cell->confirmed_previous = 0;
    cell->room = -1;
    cell->back_off_ns = at_most(at_least(2 * cell->back_off_ns, interval_ns), ROOM_INTERVALS_MAX * interval_ns);
    set_until(store, cell, now_ns);
    i64 due_ns = (i64)ceil_div(now_ns + cell->back_off_ns, interval_ns) * interval_ns;
    return agenda_promise(cell->shard->agenda, cell, due_ns);
}

/* Scale down the allowances of an answer to a report from before the capacity fell. */
static void
lower_answer(const Terms *terms, const Cell *cell, Answer *answer)
{
    i64 before = answer->capacity;
    i128 capacity = terms->capacity;
    if (cell->reported_ns <= terms->lowered_ns && terms->lowered_from > before) {
        before = terms->lowered_from;
    }
    if (capacity >= before) {
        return;
    }
    answer->allowance = (i64)floor_div(answer->allowance * capacity, before);
    answer->base = (i64)floor_div(answer->base * capacity, before);
    answer->overdraft = (i64)floor_div(answer->overdraft * capacity, before);
}

int
apply_answer(Cell *cell, const Report *report, const Answer *answered, i64 heard_ns, i64 now_ns)
{
    Store *store = store_of(cell);
    const Terms *terms = &store->terms;
    if (advance(store, cell, now_ns) < 0) {
        return -1;
    }
    measure(store, cell);
    if (answered->nodes == NOT_TAKEN) {
        return wait_for_room(store, cell, now_ns);
    }
    if (enter_window(store, cell, now_ns) < 0) { /* by what is known of the hub's clock by now */
        return -1;
    }
    set_until(store, cell, now_ns);
    cell->room = -1;
    if (answered->reset_us > cell->reset_us) {
        forget(store, cell, answered->reset_us, now_ns);
    }
    Answer lowered = *answered;
    const Answer *answer = &lowered;
    lower_answer(terms, cell, &lowered);
    cell->at_hub = report->asked >= ASKS && answer->nodes >= AT_HUB;
    if (cell->at_hub) {
        lowered.nodes -= AT_HUB;
    }
    bool sealed = cell->at_hub && answer->nodes >= SEALED;
    if (sealed) {
        lowered.nodes -= SEALED;
    }
    bool floating = floats(terms, cell), same_epoch = answer->epoch == cell->epoch;
    i64 raised = answer->allowance - (floating ? report->current : report->allowance);
    if (same_epoch || !(terms->kind == FIXED || floating)) {
        cell->allowance = answer->allowance;
    } else if (floating) {
        cell->allowance = 0;
        if (raised > 0 && request_early(store, cell, now_ns) < 0) {
            return -1; /* a grant for a window that is over goes back, and waiting requests ask again */
        }
    }
    cell->base = answer->base;
    cell->sealed = sealed;
    bool ahead = terms->kind == FIXED && answer->epoch > cell->epoch;
    cell->overdraft = ahead ? at_most(answer->overdraft, cell->overdraft) : answer->overdraft;
    cell->capacity = at_most(answer->capacity, terms->capacity);
    cell->heard_ns = heard_ns;
    cell->doubted = false;
    if (report->reset_us == cell->reset_us) {
        cell->confirmed_epoch = report->epoch;
        cell->confirmed_current = report->current;
        cell->confirmed_previous = report->previous;
    }
    bool goes_back = keeps_no_allowance(terms, cell) && report->allowance > 0;
    cell->held = goes_back || (floating ? raised > 0 : answer->allowance != 0) || answer->base || answer->overdraft ||
                 report->need_milli;
    hear_of_others(terms, cell, report, answer, heard_ns, now_ns);
    hear_of_demand(cell, answer);
    if (raised > 0) {
        cell->back_off_ns = 0;
    } else if (answer->free < 1) {
        cell->back_off_ns = at_most(at_least(2 * cell->back_off_ns, terms->interval_min_ns), terms->interval_ns);
    }
    set_until(store, cell, now_ns);
    if (!terms->keeps_allowances && now_ns >= lease_until_ns(terms, cell)) {
        cell->until_ns = now_ns; /* the lease that begins with this answer is stored later */
    }
    i64 headroom = meter_spare(terms, cell, cell->allowance, now_ns);
    cell->denied = cell->charged + headroom < cell->wanted;
    cell->low_water = low_water_for(at_least(headroom, 0));
    cell->room = -1;
    if (goes_back) {
        /* Until its next report, the hub has the node's former allowance on record. */
        return agenda_promise(cell->shard->agenda, cell, now_ns);
    }
    if (same_epoch && falls_silent(terms, cell, report, headroom, now_ns)) {
        return agenda_promise(cell->shard->agenda, cell, looks_ns(terms, cell, now_ns));
    }
    return promise_follow_up(terms, cell, headroom, now_ns);
}

/* ------------------------------------------------------------------ quiet cells */

/* Whether a cell holds enough that other nodes may lack to be worth an exchange that gives it back; or -1. */
static int
has_surplus(Cell *cell, i64 now_ns)
{
    Store *store = store_of(cell);
    const Terms *terms = &store->terms;
    if (advance(store, cell, now_ns) < 0) {
        return -1;
    }
    measure(store, cell);
    if (cell->waiters || cell->fleet_needs <= 0 || (double)cell->free >= TIGHT_SHARE * (double)cell->capacity) {
        return 0;
    }
    double elapsed_s = (double)(now_ns - cell->measured_ns) / 1e9;
    double recent = elapsed_s > 0 ? (double)cell->arrived / elapsed_s : cell->demand;
    double need = cell->demand > 0 ? expected(terms, cell) * smaller(1.0, recent / cell->demand) : 0.0;
    double keep = kept(terms, cell, need, larger(cell->fleet_needs, need));
    return (double)(cell->allowance - meter_used(terms, cell, now_ns)) - keep >= surplus_min(cell);
}

int
look_again(Cell *cell, i64 now_ns)
{
    i64 interval_ns = terms_of(cell)->interval_ns;
    if (now_ns >= cell->reported_ns + interval_ns || cell->at_hub) {
        return 1;
    }
    int surplus = has_surplus(cell, now_ns);
    if (surplus != 0) {
        return surplus;
    }
    i64 due_ns = at_most(now_ns + interval_ns / SURPLUS_CHECKS, cell->reported_ns + interval_ns);
    return agenda_promise(cell->shard->agenda, cell, due_ns);
}
