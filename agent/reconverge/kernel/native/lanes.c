/* The queue of cells of a shard that wait for a report: `kernel/reporting/lanes.py` explains why each limit has a lane,
 * a queue of its own. No other thread runs during a call here, as the interpreter has a lock. */
#include "cells.h"

#define TURN 16
#define BUCKETS_FIRST 16

struct Lane {
    Lane *older, *younger; /* its neighbours in the order in which they began */
    Lane *other;           /* the next one in its bucket */
    PyObject *table;       /* whose cells they are */
    Fifo cells;
};

/* ------------------------------------------------------------------ lanes by limit */

/* The pointer to the lane of a limit in its bucket, or the empty pointer for a new one. */
static Lane **
bucket_of(const Lanes *lanes, const PyObject *table)
{
    uint64_t hash = (uint64_t)(uintptr_t)table * 0x9E3779B97F4A7C15ULL;
    return &lanes->buckets[(size_t)(hash >> 32) & (lanes->size - 1)];
}

static Lane *
lane_of(const Lanes *lanes, const PyObject *table)
{
    Lane *lane = lanes->size == 0 ? NULL : *bucket_of(lanes, table);
    while (lane != NULL && lane->table != table) {
        lane = lane->other;
    }
    return lane;
}

/* Have as many buckets as there are lanes, or more; -1 with an error. */
static int
widen(Lanes *lanes)
{
    if (lanes->lanes < lanes->size) {
        return 0;
    }
    size_t size = lanes->size == 0 ? BUCKETS_FIRST : 2 * lanes->size;
    Lane **buckets = PyMem_Calloc(size, sizeof(Lane *));
    if (buckets == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyMem_Free(lanes->buckets);
    lanes->buckets = buckets;
    lanes->size = size;
    for (Lane *lane = lanes->oldest; lane != NULL; lane = lane->younger) {
        Lane **bucket = bucket_of(lanes, lane->table);
        lane->other = *bucket;
        *bucket = lane;
    }
    return 0;
}

/* A lane for a limit that has none; NULL with an error. */
static Lane *
begin(Lanes *lanes, PyObject *table)
{
    Lane *lane = widen(lanes) < 0 ? NULL : PyMem_Calloc(1, sizeof(*lane));
    if (lane == NULL) {
        return (Lane *)PyErr_NoMemory();
    }
    Lane **bucket = bucket_of(lanes, table);
    lane->table = Py_XNewRef(table);
    lane->other = *bucket;
    *bucket = lane;
    lane->older = lanes->youngest;
    *(lanes->youngest == NULL ? &lanes->oldest : &lanes->youngest->younger) = lane;
    lanes->youngest = lane;
    lanes->lanes++;
    return lane;
}

/* An empty lane goes. */
static void
leave(Lanes *lanes, Lane *lane)
{
    Lane **named = bucket_of(lanes, lane->table);
    while (*named != lane) {
        named = &(*named)->other;
    }
    *named = lane->other;
    *(lane->older == NULL ? &lanes->oldest : &lane->older->younger) = lane->younger;
    *(lane->younger == NULL ? &lanes->youngest : &lane->younger->older) = lane->older;
    lanes->lanes--;
    if (lanes->recent == lane) {
        lanes->recent = NULL;
    }
    PyObject *table = lane->table;
    fifo_free(&lane->cells);
    PyMem_Free(lane);
    Py_XDECREF(table); /* last of all, as anything may run now */
}

/* ------------------------------------------------------------------ cycles */

/* The lane whose turn it is; NULL if no cell waits. */
static Lane *
front(Lanes *lanes)
{
    if (lanes->next == NULL) {
        lanes->next = lanes->oldest;
        lanes->final = lanes->youngest;
    }
    return lanes->next;
}

int
lanes_append(Lanes *lanes, Cell *cell)
{
    Lane *lane = lanes->recent;
    if (lane == NULL || lane->table != cell->table) {
        lane = lane_of(lanes, cell->table);
        if (lane == NULL && (lane = begin(lanes, cell->table)) == NULL) {
            return -1;
        }
        lanes->recent = lane;
    }
    if (fifo_append(&lane->cells, cell) < 0) {
        if (lane->cells.count == 0) { /* a cycle that has just begun */
            leave(lanes, lane);
        }
        return -1;
    }
    if (lanes->number > 0) {
        cell->dirty = (char)lanes->number;
    }
    lanes->count++;
    return 0;
}

Cell *
lanes_first(Lanes *lanes)
{
    Lane *lane = lanes->count == 0 ? NULL : front(lanes);
    return lane == NULL ? NULL : fifo_first(&lane->cells);
}

Cell *
lanes_pop(Lanes *lanes)
{
    Lane *lane = lanes->count == 0 ? NULL : front(lanes);
    if (lane == NULL) {
        return NULL;
    }
    Cell *cell = fifo_pop(&lane->cells);
    lanes->count--;
    lanes->left--;
    if (lane->cells.count == 0 || lanes->left <= 0) {
        lanes->left = TURN;
        lanes->next = lane == lanes->final ? NULL : lane->younger;
        if (lane->cells.count == 0) {
            leave(lanes, lane);
        }
    }
    return cell;
}

/* ------------------------------------------------------------------ as Python sees them */

static PyObject *
Lanes_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    Lanes *self = (Lanes *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->left = TURN;
    }
    return (PyObject *)self;
}

static int
Lanes_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    for (const Lane *lane = ((Lanes *)object)->oldest; lane != NULL; lane = lane->younger) {
        Py_VISIT(lane->table);
        int stop = fifo_traverse(&lane->cells, visit, arg);
        if (stop) {
            return stop;
        }
    }
    return 0;
}

static int
Lanes_clear(PyObject *object)
{
    for (Cell *cell; (cell = lanes_pop((Lanes *)object)) != NULL;) {
        Py_DECREF(cell);
    }
    return 0;
}

static void
Lanes_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Lanes_clear(object);
    PyMem_Free(((Lanes *)object)->buckets);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
Lanes_append(PyObject *object, PyObject *cell)
{
    if (!Py_IS_TYPE(cell, types.cell)) {
        PyErr_SetString(PyExc_TypeError, "only cells wait for a report");
        return NULL;
    }
    return lanes_append((Lanes *)object, (Cell *)cell) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
Lanes_popleft(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Cell *cell = lanes_pop((Lanes *)object);
    if (cell == NULL) {
        PyErr_SetString(PyExc_IndexError, "no cell waits");
    }
    return (PyObject *)cell;
}

static Py_ssize_t
Lanes_length(PyObject *object)
{
    return ((Lanes *)object)->count;
}

static PyMemberDef Lanes_members[] = {
    {"number", T_INT, offsetof(Lanes, number), READONLY, NULL},
    {NULL},
};

static PyMethodDef Lanes_methods[] = {
    {"append", Lanes_append, METH_O, NULL},
    {"popleft", Lanes_popleft, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot Lanes_slots[] = {
    {Py_tp_new, Lanes_new},         {Py_tp_traverse, Lanes_traverse}, {Py_tp_clear, Lanes_clear},
    {Py_tp_dealloc, Lanes_dealloc}, {Py_tp_methods, Lanes_methods},   {Py_tp_members, Lanes_members},
    {Py_sq_length, Lanes_length},   {0, NULL},
};

PyType_Spec Lanes_spec = {
    .name = "reconverge.kernel._native.Lanes",
    .basicsize = sizeof(Lanes),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Lanes_slots,
};
