/* Cells in the order in which they came: the deque in Python. They stand in chunks, so that nobody who adds one waits
 * until many have been moved. */
#include "cells.h"

#define CHUNK 511

struct Chunk {
    Chunk *next;
    Cell *cells[CHUNK];
};

int
queue_append(Queue *queue, Cell *cell)
{
    if (queue->last == NULL || queue->end == CHUNK) {
        Chunk *chunk = PyMem_Malloc(sizeof(*chunk));
        if (chunk == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        chunk->next = NULL;
        if (queue->last == NULL) {
            queue->first = chunk;
            queue->begin = 0;
        } else {
            queue->last->next = chunk;
        }
        queue->last = chunk;
        queue->end = 0;
    }
    queue->last->cells[queue->end++] = (Cell *)Py_NewRef((PyObject *)cell);
    queue->count++;
    return 0;
}

Cell *
queue_pop(Queue *queue)
{
    if (queue->count == 0) {
        return NULL;
    }
    if (queue->begin == CHUNK) { /* not before, so that what was popped can be put back */
        Chunk *done = queue->first;
        queue->first = done->next;
        queue->begin = 0;
        PyMem_Free(done);
    }
    queue->count--;
    if (queue->begin + AHEAD < (queue->first == queue->last ? queue->end : CHUNK)) {
        fetch_cell(queue->first->cells[queue->begin + AHEAD]); /* it will be popped soon */
    }
    return queue->first->cells[queue->begin++];
}

void
queue_push_back(Queue *queue, Cell *cell)
{
    queue->first->cells[--queue->begin] = cell;
    queue->count++;
}

static int
Queue_traverse(PyObject *object, visitproc visit, void *arg)
{
    Queue *self = (Queue *)object;
    Py_VISIT(Py_TYPE(object));
    int at = self->begin;
    for (Chunk *chunk = self->first; chunk != NULL; chunk = chunk->next, at = 0) {
        for (int end = chunk == self->last ? self->end : CHUNK; at < end; at++) {
            Py_VISIT(chunk->cells[at]);
        }
    }
    return 0;
}

static int
Queue_clear(PyObject *object)
{
    for (Cell *cell; (cell = queue_pop((Queue *)object)) != NULL;) {
        Py_DECREF(cell);
    }
    return 0;
}

static void
Queue_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Queue_clear(object);
    PyMem_Free(((Queue *)object)->last); /* the only one when the queue is empty */
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
    return queue_append((Queue *)object, (Cell *)cell) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
Queue_popleft(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Cell *cell = queue_pop((Queue *)object);
    if (cell == NULL) {
        PyErr_SetString(PyExc_IndexError, "nobody queues");
    }
    return (PyObject *)cell;
}

static Py_ssize_t
Queue_length(PyObject *object)
{
    return ((Queue *)object)->count;
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
