/* The objects of the compiled kernel, and the functions that work on them, for all its files.
 *
 * The kernel in Python is the definition. Each function here has the name of its Python twin, and does the same to the
 * last bit. For cases that C does not support, it calls the Python function of the same name on the same objects.
 *
 * Code that touches a cell holds the interpreter's lock, and also the lock of its limit if other code may run in
 * between. While C holds the lock of a limit, or the address of a place, no foreign code runs: no function in Python,
 * and no collection. Work for Python is queued and done after the unlock; data that C lacks are fetched without the
 * lock, and then the decision is made anew (`decide_under_lock`).
 */
#ifndef RECONVERGE_NATIVE_H
#define RECONVERGE_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Numbers travel as little-endian machines keep them; elsewhere Python sees to that."
#endif

typedef int64_t i64;
typedef __int128 i128; /* amounts in cost times nanoseconds do not fit into 64 bits */

#define NEVER_NS ((i64)1 << 62)
#define NOT_TAKEN -1 /* in place of the number of nodes: the hub has no room for the key */
#define FORGOTTEN (((i64)1 << 31) - 1) /* see hub/report.py, as for the marks that follow */
#define ASKS ((i64)1 << 31)
#define AT_HUB ((i64)1 << 30)
#define FLOATS ((i64)1 << 30)
#define SEALED ((i64)1 << 29)
#define WAITING_MAX (FLOATS - 1)
#define SECOND_NS 1000000000LL
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* ------------------------------------------------------------------ lock.c: held for the arithmetic of one cell */

typedef struct KernelFields KernelFields;

typedef struct {
    PyObject_HEAD
    PyThread_type_lock inner;
    KernelFields *kernel;
    int *held; /* the count of the thread that holds it, see lock.c; NULL: it is free */
} Lock;

extern PyType_Spec Lock_spec;
bool lock_enter(Lock *lock); /* may wait, with the interpreter's lock released; false for a re-entry, see lock.c */
bool lock_enter_if_free(Lock *lock);
void lock_leave(Lock *lock);
void raise_reentry(void);
/* To be called after `lock_leave`: do what was put off while the lock was held. -1 with an error. */
int do_after_unlock(KernelFields *kernel);

typedef struct Cell Cell;

typedef struct Store Store;

/* ------------------------------------------------------------------ queue.c: cells that wait, first come, first served */

typedef struct Chunk Chunk;

/* Cells in the order in which they came; each is owned. All zeros is an empty one. */
typedef struct {
    Chunk *first, *last;
    int begin, end; /* where they begin in the first chunk, and where they end in the last one */
    i64 count;
} Fifo;

int fifo_append(Fifo *fifo, Cell *cell); /* -1 with an error */
Cell *fifo_first(const Fifo *fifo);      /* borrowed; NULL if it is empty */
Cell *fifo_pop(Fifo *fifo);              /* the reference is the caller's; NULL if it is empty */
int fifo_traverse(const Fifo *fifo, visitproc visit, void *arg);
void fifo_clear(Fifo *fifo);
void fifo_free(Fifo *fifo); /* the memory of one that is empty */

typedef struct {
    PyObject_HEAD
    Fifo cells;
} Queue;

extern PyType_Spec Queue_spec;

/* ------------------------------------------------------------------ lanes.c: which cells have something to report */

typedef struct Lane Lane;

/* Cells in the order in which they are taken: by turns those of each limit, see `kernel/reporting/lanes.py`. */
typedef struct {
    PyObject_HEAD
    Lane *oldest, *youngest; /* in the order in which they began */
    Lane *next, *final;      /* the lane whose turn it is, and the last of this cycle; `next` is NULL between cycles */
    Lane *recent;            /* to which a cell was appended last */
    Lane **buckets;          /* by limit */
    size_t size, lanes;
    i64 count;
    int left;   /* how many cells the lane may still give in this turn */
    int number; /* the value of `dirty` in cells that wait here; 0 for a queue without a number */
} Lanes;

extern PyType_Spec Lanes_spec;
int lanes_append(Lanes *lanes, Cell *cell); /* -1 with an error */
Cell *lanes_first(Lanes *lanes);            /* borrowed; NULL if none waits */
Cell *lanes_pop(Lanes *lanes);              /* the reference is the caller's; NULL if none waits */

/* ------------------------------------------------------------------ agenda.c: when to look at a cell again */

#define OPEN_MAX 8
#define GROUP_MAX 256

typedef struct Agenda Agenda;

/* Cells of one store that are looked at again at one moment, in the order in which that was promised. */
typedef struct {
    i64 due_ns, number;
    i64 at;           /* its place in the heap */
    Agenda *agenda;   /* NULL once the agenda is gone */
    Store *store;     /* the store of the cells, which outlives the group; NULL for a single cell without a place: */
    Cell *cell;
    uint32_t *places; /* the cells' place numbers plus one; 0 where a cell has left */
    int joined, size, first, live;
    int shard;        /* its number */
    i64 reported_ns;  /* when the last of them was reported */
    uint8_t *pattern; /* the cell to which quiet cells are stored as differences, see compressed.c */
} Group;

/* Groups, the next one first. */
struct Agenda {
    PyObject_HEAD
    Group **groups; /* a heap */
    i64 size, count, numbers;
    Group *open[OPEN_MAX]; /* those that may be joined, the oldest first */
    int open_count;
};

extern PyType_Spec Agenda_spec;
int agenda_promise(Agenda *agenda, Cell *cell, i64 due_ns);
void agenda_forget(Cell *cell);
i64 agenda_due_ns(const Agenda *agenda);
void group_leave(Group *group, int slot);
PyObject *due_cells(PyObject *module, PyObject *const *args, Py_ssize_t count);   /* due.c */
PyObject *put_forward(PyObject *module, PyObject *const *args, Py_ssize_t count); /* likewise */

/* ------------------------------------------------------------------ shard.c: what many cells have in common */

/* Whole numbers of ShardState, which is a subclass in Python. */
#define SHARD_FIELDS(X)                                                                                              \
    X(index) X(offset_ns) X(lag_ns) X(late_ns) X(round_trip_ns) X(acked_ns) X(lease_until_ns) X(unconfirmed)         \
    X(leased_ns) X(lost_ns) X(not_taken) X(nodes) X(opens_us) X(away)                                                \
    X(attended_until_ns) X(looks_ns) X(regular_ns) X(begins_ns) X(early_ns) X(refreshed_ns) X(under_way_ns)

#define DECLARE(name) i64 name;
typedef struct {
    PyObject_HEAD
    SHARD_FIELDS(DECLARE)
    char alone;
    Lanes *dirty, *round, *urgent;
    Agenda *agenda;
} Shard;

typedef struct {
    PyObject_HEAD
    i64 charged, refunded, fresh_from_ns;
    Queue *fresh; /* new keys that wait for their first report, see `kernel/newcomers.py` */
} Tally;

/* How many keys a node keeps, and the most that it may; and the work that waits until no lock is held. */
struct KernelFields {
    PyObject_HEAD
    i64 keys, keys_max;
    char after_unlock; /* there is such work */
    char wake_wanted;  /* the loop is to be woken */
    i64 turn;          /* which of the limits is looked at next for keys that may leave */
};

extern PyType_Spec Shard_spec, Tally_spec, Kernel_spec;

/* ------------------------------------------------------------------ cell.c: one key of one limit */

/* The whole numbers of a cell, each with its first value. */
#define CELL_FIELDS(X)                                                                                               \
    X(used, 0) X(room, -1) X(until_ns, 0) X(place, -1) X(epoch, -1) X(opened_ns, 0) X(lag_ns, 0) X(previous, 0)      \
    X(marked_ns, now_ns) X(before_ns, -NEVER_NS) X(free_us, 0) X(charged, 0) X(reset_us, 0) X(allowance, 0) X(base, 0)    \
    X(overdraft, 0) X(capacity, 0) X(heard_ns, -NEVER_NS) X(others_current, 0) X(others_previous, 0) X(silent, 0)    \
    X(free, 0) X(reserved, 0) X(nodes, 1) X(fleet_window, 0) X(last_demand, 0) X(share, 0) X(waiters, 0)             \
    X(waiting, 0) X(head_cost, 0) X(wanted, 0) X(counted, 0) X(arrived, 0) X(asked, 0) X(ask, 0)                      \
    X(window_demand, 0) X(asking_ns, -NEVER_NS)                                                                      \
    X(measured_ns, now_ns) X(touched_ns, now_ns) X(reported_ns, -NEVER_NS) X(need_milli, 0) X(confirmed_epoch, -1)   \
    X(confirmed_current, 0) X(confirmed_previous, 0) X(low_water, 0) X(early_ns, NEVER_NS) X(back_off_ns, 0)
#define CELL_AMOUNTS(X) X(level) X(stored) X(credit) X(late)
#define CELL_RATES(X) X(fleet_used) X(fleet_needs) X(fleet_demand) X(demand)
#define CELL_MARKS(X)                                                                                                \
    X(held) X(unconfirmed) X(urgent) X(taken) X(fresh) X(leaving) X(doubted) X(at_hub) X(sealed) X(denied)          \
    X(comfortable)

#define DECLARE_FIELD(name, first) i64 name;
#define DECLARE_AMOUNT(name) i128 name;
#define DECLARE_RATE(name) double name;
#define DECLARE_MARK(name) char name;
struct Cell {
    PyObject_HEAD
    PyObject *key, *table;
    Shard *shard;
    PyObject *store; /* where it was put; NULL if nowhere */
    PyObject *lows, *history;
    Group *group; /* the group of its promise; NULL without one */
    int slot;     /* its index in that group */
    CELL_FIELDS(DECLARE_FIELD)
    CELL_RATES(DECLARE_RATE)
    CELL_MARKS(DECLARE_MARK)
    char dirty; /* the number of the queue in which it waits for a report; 0 if nothing is new */
    CELL_AMOUNTS(DECLARE_AMOUNT)
};

extern PyType_Spec Cell_spec;
Cell *cell_new(PyObject *key, PyObject *table, Shard *shard, i64 capacity, i64 now_ns); /* NULL with an error */
PyObject *whole_from_amount(i128 amount);
int amount_from_whole(PyObject *whole, i128 *amount); /* -1 and OverflowError if it does not fit */

/* ------------------------------------------------------------------ evicted.c: keys that may have been evicted */

typedef struct {
    PyObject_HEAD
    uint64_t words[2]; /* the key of the hash */
    i64 mask, fade_ns, turned_ns, older_ns, epoch, rate;
    size_t size;              /* the bytes of each memory: of bits on a node with a hub, else of counters */
    uint8_t *younger, *older; /* NULL while nothing is remembered */
} Evicted;

typedef struct {
    i64 epoch, current, previous;
} Window;

extern PyType_Spec Evicted_spec;
bool evicted_recall(Evicted *evicted, PyObject *key, i64 now_ns);
int evicted_remember(Evicted *evicted, PyObject *key, i64 now_ns); /* -1 with an error */
/* Whether the use could be stored; -1 with an error. */
int evicted_keep_window(Evicted *evicted, PyObject *key, i64 epoch, i64 current, i64 previous, i64 now_ns);
int evicted_keep_level(Evicted *evicted, PyObject *key, i128 level, i64 window_ns, i64 now_ns);
int evicted_window_of(Evicted *evicted, PyObject *key, i64 now_ns, Window *window); /* 0 if nothing is kept; -1 with an error */
int evicted_level_of(Evicted *evicted, PyObject *key, i64 window_ns, i64 now_ns, i128 *level); /* -1 with an error */

/* ------------------------------------------------------------------ store.c: the cells of one limit by key */

enum { FIXED, SLIDING, BUCKET };
enum { STRICT, BALANCED, AVAILABLE, NAIVE };

/* The attributes of a Table by which this kernel decides about its limit, if it supports the limit. */
typedef struct {
    bool plain; /* whether C supports the limit; if not, the other fields mean nothing */
    bool keeps_allowances, merged_only, soft, small_allowances, admits_when_away;
    int kind, policy;
    i64 window_ns, quota, capacity, own_part, nominal, cost_max, interval_ns, interval_min_ns, withheld, idle_ns, overshoot_milli,
        lease_ns, relearns_ns, deals_shares_ns, lowered_ns, lowered_from, silence_ns, phase;
    double cold_allowance; /* negative if a new key gets the node's share, see `cold_reach` */
    i128 level_max; /* about a bucket with a higher level Python decides */
} Terms;

typedef struct {
    uint64_t *entries; /* number of the place in the upper half, and a part of the hash; 0 when empty */
    uint32_t size, count;
} Segment;

/* The data to fetch from Python, without the lock, before a decision can be made. */
enum { NOTHING, TIME, SHARD, PYTHON };

/* The form in which a key is kept. On a node without a hub, only decisions use most keys; of shared keys, most are not
 * even used by decisions. Neither sort needs an object. */
enum { WHOLE, LONE, QUIET };
#define FORMS 3

typedef struct {
    Py_hash_t hash; /* the whole hash, which identifies the key */
    uintptr_t key; /* the string, owned, and the form in its lowest bits; 0 when the place is empty */
    union {
        Cell *cell; /* WHOLE; owned */
        struct {
            int32_t used, room;
            i64 until_ns;
            i64 level;     /* of a bucket; of a window, what was charged in the one before */
            i64 marked_ns; /* of a bucket; of a window, its number */
        } lone; /* see local_only.c */
        struct {
            uint64_t head;
            union {
                uint8_t here[24];
                uint8_t *aside;
            };
        } quiet; /* see compressed.c */
    };
} Place;

#define PLACES_PASSED 8 /* the most places that one call visits, however many of them are empty */
#define LISTED_MAX 64   /* a store with more keys is wide: they are not listed, and it is searched */
#define SEGMENTS 256
#define SLAB_BYTES ((size_t)2 << 20)
#define SLAB ((i64)(SLAB_BYTES / sizeof(Place)))

struct Store {
    PyObject_HEAD
    Segment segments[SEGMENTS];
    Place **slabs; /* no place ever moves */
    uint32_t *empty;
    i64 slabs_count, places, empty_count, empty_size, count, hand;
    i64 admitted, refused;
    i64 unit, key_bytes_max;
    bool additive;
    bool exact; /* whether keys are compared, and not only their hashes */
    Terms terms;
    Lock *lock;
    KernelFields *kernel;
    PyObject *table, *clock; /* clock: NULL if it is the machine's own */
    PyObject *tallies, *shards, *name, *reported_as, *hash;
    PyObject *beside; /* a list of the wide stores that share their keys with this one; NULL or None if none do */
    PyObject *homes;  /* a dict shared with them: the store of each key that is not in a wide store; likewise */
    bool wide;
    int missing; /* why a decision failed without an error */
    Tally *lone_tally; /* borrowed: `tallies` owns it */
    Evicted *evicted;
    Shard *lone_shard; /* for a limit that C decides on a node without a hub; else NULL */
    /* For keys that find no room; apart from the fields that every decision reads. */
    PyObject *overflow; /* the cell in which they are counted together; NULL or None if there is none */
    PyObject *peers;    /* the limits of the node by name, a dict */
    i64 overflowed, left_early, let_go_ns;
};

/* Whether keys move between this store and others. */
static inline bool
has_beside(const Store *store)
{
    return store->homes != NULL && PyDict_CheckExact(store->homes) && store->beside != NULL
        && PyList_CheckExact(store->beside);
}

/* ------------------------------------------------------------------ page_allocator.c: memory in whole pages */

void *pages_new(size_t size); /* all zeros */
void pages_free(void *memory, size_t size);
void *slab_new(void);
void slab_is_full(void *slab);
void slab_free(void *slab);

extern PyType_Spec Store_spec;
Place *store_place(Store *store, PyObject *key); /* NULL without an error if there is none */
void store_fetch(Store *store, PyObject *const *keys, Py_ssize_t count); /* have the processor fetch what is needed */
Cell *store_find(Store *store, PyObject *key);    /* borrowed; made whole; NULL without an error if there is none */
i64 number_of_place(const Store *store, const Place *place);
Place *store_next(Store *store);                 /* the next one round; NULL if it is empty */
void store_leave(Store *store, Place *place);     /* forget a key */

static inline PyObject *
key_of(const Place *place)
{
    return (PyObject *)(place->key & ~(uintptr_t)FORMS);
}

static inline int
form_of(const Place *place)
{
    return (int)(place->key & FORMS);
}

/* ------------------------------------------------------------------ local_only.c: keys that need no object */

/* The numbers of a key, in a cell on the stack. */
void lone_read(Store *store, const Place *place, Cell *scratch);
bool lone_write(Store *store, Cell *cell, Place *place);         /* false if it has to be an object */
void lone_assign(const Cell *scratch, Cell *cell);
int lone_keep(Store *store, Cell *scratch, Place *place);         /* write it, or make it an object; -1 with an error */
Cell *whole(Store *store, Place *place);                         /* borrowed; NULL with an error */
void try_lone(Store *store, Place *place);                       /* free the object, if no other code refers to it */
PyObject *store_evict(PyObject *self, PyObject *const *args, Py_ssize_t count);
bool next_fit(const Store *store, i64 most); /* whether `evict` needs no Python for `most` keys without a hub */
bool would_leave(Store *store, i64 now_ns, i64 most); /* whether a key without an object would, of a full node */
i64 evict(Store *store, i64 now_ns, i64 most, bool keep, bool full); /* how many left, or -1 with an error */

/* ------------------------------------------------------------------ compressed.c: shared keys without requests */

bool try_quiet(Store *store, Place *place); /* do without the object, if nothing else has it */
void let_rest(Cell *cell);                  /* the same if no call uses the cell; takes over the reference */
Cell *unquiet(Store *store, Place *place);  /* see `whole` */
void quiet_read(const Place *place, Cell *scratch); /* its numbers, as a cell that is no object */
void quiet_free(Place *place);
int quiet_aside(const Place *place); /* bytes that are not in the place itself */
void quiet_leave(Place *place); /* as the key is forgotten */

/* ------------------------------------------------------------------ insert.c: keys that are new */

/* A place for a key that has none; NULL if there is no room for it, and `beyond` is set, or if Python has to do it.
 * Before the call `beyond` is whether C can count keys beyond `keys_max`. `shard` is that of the key if it is known, or
 * NULL. -1 with an error, or if something is missing. */
int store_meet(Store *store, PyObject *key, i64 now_ns, Shard *shard, Place **place, bool *beyond);

/* ------------------------------------------------------------------ full.c: keys that find no room */

/* Drop keys of a full node that may leave: 0 if there is no room, 1 if enough have left, 2 if Python has to do it; then
 * nothing has been changed. `beyond`: whether C can count a key that finds no room. -1 with an error, or if something
 * is missing. */
int make_room_in_full(Store *store, bool beyond, i64 now_ns);

/* configure.c */ PyObject *store_serve(PyObject *self, PyObject *args);

/* ------------------------------------------------------------------ decide.c: deciding about one key */

PyObject *store_allow(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* many.c */ PyObject *store_allow_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *store_hit(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *hit_all(PyObject *module, PyObject *const *args, Py_ssize_t count);
/* look.c */ PyObject *store_settles(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* look.c */ PyObject *store_test(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* ------------------------------------------------------------------ exchange.c: the report and the answer of a cell */

/* The numbers of a CellReport and of a CellAnswer, in the order of their fields. */
typedef struct {
    i64 limit, epoch, current, previous, allowance, base, overdraft, need_milli, ask, asked, demand_milli, window_demand,
        reset_us;
} Report;

typedef struct {
    i64 epoch, allowance, base, overdraft, capacity, free, reserved, current, previous, silent, needs_milli, demand_milli,
        nodes, last_demand, window_demand, reset_us;
} Answer;

#define REPORT_FIELDS ((Py_ssize_t)(sizeof(Report) / sizeof(i64)))
#define ANSWER_FIELDS ((Py_ssize_t)(sizeof(Answer) / sizeof(i64)))

bool known_here(const Cell *cell); /* whether its limit is decided here, and its numbers are small enough */
int report_cell(Cell *cell, i64 now_ns, bool in_touch, Report *report); /* 1, 0 if there is nothing to report, or -1 */
int apply_answer(Cell *cell, const Report *report, const Answer *answer, i64 heard_ns, i64 now_ns);
int look_again(Cell *cell, i64 now_ns); /* 1, 0, or -1 with an error */

/* ------------------------------------------------------------------ reports.c: the reports and answers of a batch */

extern PyType_Spec Reports_spec;
Lock *lock_of(const Cell *cell); /* of its limit; a new reference, or NULL with an error */
PyObject *report_cells(PyObject *module, PyObject *args);
PyObject *rebase_cells(PyObject *module, PyObject *args);
PyObject *apply_answers(PyObject *module, PyObject *args);

/* ------------------------------------------------------------------ module.c: what is looked up once */

typedef struct {
    bool secret_hashes; /* whether the hash of a key is unknown outside of the process */
    PyTypeObject *lock, *queue, *lanes, *agenda, *shard, *tally, *kernel, *cell, *store, *decision, *reports, *evicted;
    PyObject *reentry; /* the exception */
} Types;

extern Types types;

#endif
