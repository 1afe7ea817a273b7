/* Cells in the order in which they came: the deque in Python. They are kept in chunks, so that no call that adds a cell
 * has to move many. */
#include "cells.h"

#define CHUNK 63
/* A chunk is as large as the interpreter's largest small block, so a limit with few waiting cells takes no more. */

struct Chunk {
    Chunk *next;
    Cell *cells[CHUNK];
};

int
fifo_append(Fifo *fifo, Cell *cell)
{
    if (fifo->last == NULL || fifo->end == CHUNK) {
        Chunk *chunk = PyMem_Malloc(sizeof(*chunk));
        if (chunk == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        chunk->next = NULL;
        if (fifo->last == NULL) {
            fifo->first = chunk;
            fifo->begin = 0;
        } else {
            fifo->last->next = chunk;
        }
        fifo->last = chunk;
        fifo->end = 0;
    }
    fifo->last->cells[fifo->end++] = (Cell *)Py_NewRef((PyObject *)cell);
    fifo->count++;
    return 0;
}

Cell *
fifo_first(const Fifo *fifo)
{
    return fifo->count == 0 ? NULL : fifo->first->cells[fifo->begin];
}

/* Have the processor fetch the cell that is popped soon. */
static inline void
fetch_ahead(const Fifo *fifo)
{
    if (fifo->count > AHEAD) {
        int at = fifo->begin + AHEAD;
        fetch_cell(at < CHUNK ? fifo->first->cells[at] : fifo->first->next->cells[at - CHUNK]);
    }
}

Cell *
fifo_pop(Fifo *fifo)
{
    if (fifo->count == 0) {
        return NULL;
    }
    fetch_ahead(fifo);
    Chunk *chunk = fifo->first;
    Cell *cell = chunk->cells[fifo->begin++];
    fifo->count--;
    if (fifo->count == 0) {
        fifo->begin = fifo->end = 0; /* in the chunk that is kept */
    } else if (fifo->begin == CHUNK) {
        fifo->first = chunk->next;
        fifo->begin = 0;
        PyMem_Free(chunk);
    }
    return cell;
}

int
fifo_traverse(const Fifo *fifo, visitproc visit, void *arg)
{
    int at = fifo->begin;
    for (const Chunk *chunk = fifo->first; chunk != NULL; chunk = chunk->next, at = 0) {
        for (int end = chunk == fifo->last ? fifo->end : CHUNK; at < end; at++) {
            Py_VISIT(chunk->cells[at]);
        }
    }
    return 0;
}

void
fifo_clear(Fifo *fifo)
{
    for (Cell *cell; (cell = fifo_pop(fifo)) != NULL;) {
        Py_DECREF(cell);
    }
}

void
fifo_free(Fifo *fifo)
{
    PyMem_Free(fifo->last); /* the only one when it is empty */
    fifo->first = fifo->last = NULL;
}

/* ------------------------------------------------------------------ as Python sees them */

static int
Queue_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    return fifo_traverse(&((Queue *)object)->cells, visit, arg);
}

static int
Queue_clear(PyObject *object)
{
    fifo_clear(&((Queue *)object)->cells);
    return 0;
}

static void
Queue_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Queue_clear(object);
    fifo_free(&((Queue *)object)->cells);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
Queue_append(PyObject *object, PyObject *cell)
{
    if (!Py_IS_TYPE(cell, types.cell)) {
        PyErr_SetString(PyExc_TypeError, "only cells queue up");
        return NULL;
    }
    return fifo_append(&((Queue *)object)->cells, (Cell *)cell) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
Queue_popleft(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Cell *cell = fifo_pop(&((Queue *)object)->cells);
    if (cell == NULL) {
        PyErr_SetString(PyExc_IndexError, "the queue is empty");
    }
    return (PyObject *)cell;
}

static Py_ssize_t
Queue_length(PyObject *object)
{
    return ((Queue *)object)->cells.count;
}

static PyMethodDef Queue_methods[] = {
    {"append", Queue_append, METH_O, NULL},
    {"popleft", Queue_popleft, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot Queue_slots[] = {
    {Py_tp_traverse, Queue_traverse}, {Py_tp_clear, Queue_clear},   {Py_tp_dealloc, Queue_dealloc},
    {Py_tp_methods, Queue_methods},   {Py_sq_length, Queue_length}, {0, NULL},
};

PyType_Spec Queue_spec = {
    .name = "reconverge.kernel._native.Queue",
    .basicsize = sizeof(Queue),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Queue_slots,
};
