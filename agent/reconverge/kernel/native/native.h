/* What the files of the compiled kernel share: its objects, and who works on them.
 *
 * The kernel in Python is the definition. Everything in here has the name that it has there, and does the same to the
 * last bit; what is not written here falls back to the Python of the same name, which works on the same objects.
 *
 * Whoever touches a cell holds the interpreter's lock, and the lock of its limit too if anything may run in between.
 */
#ifndef RECONVERGE_NATIVE_H
#define RECONVERGE_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

typedef int64_t i64;
typedef __int128 i128; /* amounts in cost times nanoseconds do not fit into 64 bits */

#define NEVER_NS ((i64)1 << 62)
#define SECOND_NS 1000000000LL
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* ------------------------------------------------------------------ lock.c: held for the arithmetic of one cell */

typedef struct {
    PyObject_HEAD
    PyThread_type_lock inner;
    bool held;
} Lock;

extern PyType_Spec Lock_spec;
bool lock_enter(Lock *lock); /* may wait, with the interpreter's lock released */
void lock_leave(Lock *lock);

/* ------------------------------------------------------------------ shard.c: what many cells have in common */

/* Whole numbers of ShardState, which is a subclass in Python. */
#define SHARD_FIELDS(X)                                                                                              \
    X(index) X(offset_ns) X(lag_ns) X(late_ns) X(round_trip_ns) X(acked_ns) X(lease_until_ns) X(unconfirmed)         \
    X(attended_until_ns) X(early_ns) X(refreshed_ns)

#define DECLARE(name) i64 name;
typedef struct {
    PyObject_HEAD
    SHARD_FIELDS(DECLARE)
    char alone;
    PyObject *stirred, *wanted; /* deques */
} Shard;

typedef struct {
    PyObject_HEAD
    i64 charged, refunded;
} Tally;

extern PyType_Spec Shard_spec, Tally_spec;

/* ------------------------------------------------------------------ cell.c: one key of one limit */

/* Whole numbers of a cell, and what they are at first. */
#define CELL_FIELDS(X)                                                                                               \
    X(used, 0) X(room, -1) X(until_ns, 0) X(place, -1) X(epoch, -1) X(opened_ns, 0) X(lag_ns, 0) X(previous, 0)      \
    X(marked_ns, now_ns) X(before_ns, -NEVER_NS) X(free_us, 0) X(charged, 0) X(reset_us, 0) X(line, 0) X(base, 0)    \
    X(overdraft, 0) X(capacity, 0) X(heard_ns, -NEVER_NS) X(others_current, 0) X(others_previous, 0) X(silent, 0)    \
    X(free, 0) X(reserved, 0) X(nodes, 1) X(fleet_window, 0) X(last_demand, 0) X(share, 0) X(waiters, 0)             \
    X(waiting, 0) X(foremost, 0) X(counted, 0) X(arrived, 0) X(asked, 0) X(ask, 0) X(window_demand, 0)               \
    X(measured_ns, now_ns) X(touched_ns, now_ns) X(reported_ns, -NEVER_NS) X(need_milli, 0) X(confirmed_epoch, -1)   \
    X(confirmed_current, 0) X(confirmed_previous, 0) X(water, 0) X(early_ns, NEVER_NS) X(back_off_ns, 0)             \
    X(due_ns, NEVER_NS)
#define CELL_AMOUNTS(X) X(level) X(stored) X(credit) X(late)
#define CELL_RATES(X) X(fleet_used) X(fleet_needs) X(fleet_demand) X(demand)
#define CELL_MARKS(X) X(held) X(unconfirmed) X(stirred) X(wanted)

#define DECLARE_FIELD(name, first) i64 name;
#define DECLARE_AMOUNT(name) i128 name;
#define DECLARE_RATE(name) double name;
#define DECLARE_MARK(name) char name;
typedef struct {
    PyObject_HEAD
    PyObject *key, *table;
    Shard *shard;
    PyObject *lows, *history;
    CELL_FIELDS(DECLARE_FIELD)
    CELL_RATES(DECLARE_RATE)
    CELL_MARKS(DECLARE_MARK)
    CELL_AMOUNTS(DECLARE_AMOUNT)
} Cell;

extern PyType_Spec Cell_spec;
PyObject *whole_from_amount(i128 amount);
int amount_from_whole(PyObject *whole, i128 *amount); /* -1 and OverflowError if it does not fit */

/* ------------------------------------------------------------------ store.c: the cells of one limit by key */

enum { FIXED, SLIDING, BUCKET };

/* What decides about a limit, if it is one that this kernel knows: the attributes of a Table. */
typedef struct {
    bool plain; /* known here; the rest is meaningless if not */
    bool keeps_lines, merged_only, strict, soft;
    int kind;
    i64 window_ns, quota, capacity, nominal, cost_max, interval_ns, interval_min_ns, withheld;
    double cold_allowance;
    i128 level_max; /* a bucket fuller than that is not reckoned with here */
} Terms;

typedef struct {
    uint64_t *entries; /* number of the place in the upper half, and a part of the hash; 0 when empty */
    uint32_t size, count;
} Segment;

#define SEGMENTS 256
#define SLAB 1024

typedef struct {
    PyObject_HEAD
    Segment segments[SEGMENTS];
    Cell ***slabs; /* places, 1024 to a slab, so that none ever moves */
    uint32_t *empty;
    i64 slabs_count, places, empty_count, empty_size, count, hand;
    i64 admitted, refused;
    i64 unit;
    bool additive;
    Terms terms;
    Lock *lock;
    PyObject *table, *kernel, *clock; /* clock: NULL if it is the machine's own */
    PyObject *tallies, *name, *hash;
} Store;

extern PyType_Spec Store_spec;
Cell *store_find(Store *store, PyObject *key); /* borrowed; NULL without an error if there is none */

/* ------------------------------------------------------------------ decide.c: deciding about one key */

PyObject *store_allow(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *store_hit(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* ------------------------------------------------------------------ module.c: what is looked up once */

typedef struct {
    PyTypeObject *lock, *shard, *tally, *cell, *store, *decision;
} Types;

extern Types types;

#endif
