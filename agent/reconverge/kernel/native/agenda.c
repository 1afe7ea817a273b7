/* Which cells of a shard have something to say: those that changed, those that are in a hurry, and quiet ones at times
 * that were promised. */
#include "cells.h"
#include "python.h"

/* ------------------------------------------------------------------ cells in the order in which they came */

int
queue_append(Queue *queue, Cell *cell)
{
    if (queue->count == queue->size) {
        i64 size = queue->size ? 2 * queue->size : 16;
        Cell **cells = PyMem_Malloc((size_t)size * sizeof(*cells));
        if (cells == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (i64 at = 0; at < queue->count; at++) {
            cells[at] = queue->cells[(queue->first + at) % queue->size];
        }
        PyMem_Free(queue->cells);
        queue->cells = cells;
        queue->size = size;
        queue->first = 0;
    }
    queue->cells[(queue->first + queue->count++) & (queue->size - 1)] = (Cell *)Py_NewRef((PyObject *)cell);
    return 0;
}

Cell *
queue_pop(Queue *queue)
{
    if (queue->count == 0) {
        return NULL;
    }
    Cell *cell = queue->cells[queue->first];
    queue->first = (queue->first + 1) & (queue->size - 1);
    queue->count--;
    return cell;
}

/* The same, where others will be popped soon: they are on their way by then. */
static inline Cell *
fetched_pop(Queue *queue)
{
    if (queue->count > AHEAD) {
        fetch_cell(queue->cells[(queue->first + AHEAD) & (queue->size - 1)]);
    }
    return queue_pop(queue);
}

/* Put the cell that was popped last back where it was; the reference goes with it. */
static void
queue_push_back(Queue *queue, Cell *cell)
{
    queue->first = (queue->first - 1) & (queue->size - 1);
    queue->cells[queue->first] = cell;
    queue->count++;
}

static int
Queue_traverse(PyObject *object, visitproc visit, void *arg)
{
    Queue *self = (Queue *)object;
    Py_VISIT(Py_TYPE(object));
    for (i64 at = 0; at < self->count; at++) {
        Py_VISIT(self->cells[(self->first + at) & (self->size - 1)]);
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
    PyMem_Free(((Queue *)object)->cells);
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

/* ------------------------------------------------------------------ promises */

#define LOOKS_MAX 512   /* promises in one go */
#define PASSED_MAX 4096 /* cells that were reported meanwhile, in one go */

static inline bool
sooner(const Promise *one, const Promise *other)
{
    return one->due_ns != other->due_ns ? one->due_ns < other->due_ns : one->number < other->number;
}

int
agenda_promise(Agenda *agenda, Cell *cell, i64 due_ns)
{
    if (agenda->count == agenda->size) {
        i64 size = agenda->size ? agenda->size + agenda->size / 2 : 16;
        Promise *promises = PyMem_Realloc(agenda->promises, (size_t)size * sizeof(*promises));
        if (promises == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        agenda->promises = promises;
        agenda->size = size;
    }
    cell->due_ns = due_ns;
    Promise promise = {due_ns, ++agenda->numbers, (Cell *)Py_NewRef((PyObject *)cell)};
    i64 at = agenda->count++;
    while (at > 0 && sooner(&promise, &agenda->promises[(at - 1) / 2])) {
        agenda->promises[at] = agenda->promises[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    agenda->promises[at] = promise;
    return 0;
}

/* Take the next promise off; there is one. The reference to its cell is the caller's. */
static Cell *
agenda_pop(Agenda *agenda)
{
    Cell *cell = agenda->promises[0].cell;
    Promise last = agenda->promises[--agenda->count];
    i64 at = 0;
    for (;;) {
        i64 next = 2 * at + 1;
        if (next >= agenda->count) {
            break;
        }
        if (next + 1 < agenda->count && sooner(&agenda->promises[next + 1], &agenda->promises[next])) {
            next++;
        }
        if (!sooner(&agenda->promises[next], &last)) {
            break;
        }
        agenda->promises[at] = agenda->promises[next];
        at = next;
    }
    agenda->promises[at] = last;
    return cell;
}

i64
agenda_due_ns(Agenda *agenda)
{
    /* A promise that was replaced by another is not kept. */
    for (int looks = 0; looks < LOOKS_MAX && agenda->count > 0; looks++) {
        if (agenda->promises[0].cell->due_ns == agenda->promises[0].due_ns) {
            break;
        }
        Py_DECREF(agenda_pop(agenda));
    }
    return agenda->count > 0 ? agenda->promises[0].due_ns : NEVER_NS;
}

static int
Agenda_traverse(PyObject *object, visitproc visit, void *arg)
{
    Agenda *self = (Agenda *)object;
    Py_VISIT(Py_TYPE(object));
    for (i64 at = 0; at < self->count; at++) {
        Py_VISIT(self->promises[at].cell);
    }
    return 0;
}

static int
Agenda_clear(PyObject *object)
{
    Agenda *self = (Agenda *)object;
    while (self->count > 0) {
        Py_DECREF(self->promises[--self->count].cell);
    }
    return 0;
}

static void
Agenda_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Agenda_clear(object);
    PyMem_Free(((Agenda *)object)->promises);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
Agenda_promise(PyObject *object, PyObject *args)
{
    Cell *cell;
    long long due_ns;
    if (!PyArg_ParseTuple(args, "O!L:promise", types.cell, &cell, &due_ns) ||
        agenda_promise((Agenda *)object, cell, due_ns) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
Agenda_due_ns(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLongLong(agenda_due_ns((Agenda *)object));
}

static PyMethodDef Agenda_methods[] = {
    {"promise", Agenda_promise, METH_VARARGS, NULL},
    {"due_ns", Agenda_due_ns, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot Agenda_slots[] = {
    {Py_tp_traverse, Agenda_traverse}, {Py_tp_clear, Agenda_clear},     {Py_tp_dealloc, Agenda_dealloc},
    {Py_tp_methods, Agenda_methods},   {0, NULL},
};

PyType_Spec Agenda_spec = {
    .name = "reconverge.kernel._native.Agenda",
    .basicsize = sizeof(Agenda),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Agenda_slots,
};

/* ------------------------------------------------------------------ what is to be reported now */

/* The cells that were found, and how many there may be. `more` once one had no room. */
typedef struct {
    PyObject *list;
    Py_ssize_t most;
    bool more;
} Found;

/* Put a cell on the list. Takes the reference over; -1 with an error. */
static int
add(Found *found, Cell *cell)
{
    cell->taken = true;
    int done = PyList_Append(found->list, (PyObject *)cell);
    Py_DECREF(cell);
    return done;
}

static inline bool
is_full(const Found *found)
{
    return PyList_GET_SIZE(found->list) >= found->most;
}

/* Those that are in a hurry. */
static int
take_wanted(Shard *shard, i64 now_ns, bool early, Found *found)
{
    Queue *queue = shard->wanted;
    int failed = 0, passed = 0;
    shard->early_ns = NEVER_NS;
    for (i64 left = queue->count; left > 0 && queue->count > 0 && !failed; left--) {
        if (passed == PASSED_MAX) {
            shard->early_ns = now_ns;
            found->more = true;
            break;
        }
        Cell *cell = fetched_pop(queue);
        if (!cell->wanted || cell->taken) { /* reported meanwhile */
            passed++;
            Py_DECREF(cell);
        } else if (early && cell->early_ns > now_ns) {
            failed = queue_append(queue, cell);
            shard->early_ns = at_most(shard->early_ns, cell->early_ns);
            Py_DECREF(cell);
        } else if (!is_full(found)) {
            failed = add(found, cell);
        } else {
            queue_push_back(queue, cell);
            shard->early_ns = now_ns;
            found->more = true;
            break;
        }
    }
    return failed;
}

/* Those that have something new. */
static int
take_stirred(Shard *shard, Found *found)
{
    Queue *queue = shard->stirred;
    int failed = 0, passed = 0;
    for (i64 left = queue->count; left > 0 && queue->count > 0 && !failed; left--) {
        if (passed == PASSED_MAX) {
            found->more = true;
            break;
        }
        Cell *cell = fetched_pop(queue);
        if (!cell->stirred || cell->taken) {
            passed++;
            Py_DECREF(cell);
        } else if (!is_full(found)) {
            failed = add(found, cell);
        } else {
            queue_push_back(queue, cell);
            found->more = true;
            break;
        }
    }
    return failed;
}

static int
look_again_under_lock(Cell *cell, i64 now_ns)
{
    Lock *lock = lock_of(cell);
    if (lock == NULL) {
        return -1;
    }
    int now;
    lock_enter(lock);
    if (known_here(cell)) {
        now = look_again(cell, now_ns);
    } else {
        PyObject *answer = PyObject_CallFunction(python.look_again, "OL", cell, (long long)now_ns);
        now = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
    }
    lock_leave(lock);
    Py_DECREF(lock);
    return now;
}

static inline bool
is_due(const Agenda *agenda, i64 now_ns)
{
    return agenda->count > 0 && agenda->promises[0].due_ns <= now_ns;
}

/* Those that were promised another look, and turn out to be worth it. */
static int
take_promised(Shard *shard, i64 now_ns, Found *found)
{
    Agenda *agenda = shard->agenda;
    int failed = 0;
    for (int looks = 0; looks < LOOKS_MAX && !failed && is_due(agenda, now_ns); looks++) {
        i64 due_ns = agenda->promises[0].due_ns;
        Cell *cell = agenda_pop(agenda);
        bool replaced = cell->due_ns != due_ns;
        if (!replaced) {
            cell->due_ns = NEVER_NS;
        }
        if (replaced || cell->stirred || cell->taken) {
            Py_DECREF(cell);
            continue;
        }
        if (is_full(found)) {
            failed = agenda_promise(agenda, cell, now_ns);
            Py_DECREF(cell);
            break;
        }
        int now = look_again_under_lock(cell, now_ns);
        if (now > 0) {
            failed = add(found, cell);
        } else {
            failed = now;
            Py_DECREF(cell);
        }
    }
    found->more = is_due(agenda, now_ns);
    return failed;
}

/* due_cells(shard, now_ns, early, companions_max, cells_max): the cells to report now, each once, in the order in which
 * they asked; and whether there are more of them. */
PyObject *
due_cells(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 5 || !PyObject_TypeCheck(args[0], types.shard)) {
        PyErr_SetString(PyExc_TypeError, "due_cells(shard, now_ns, early, companions_max, cells_max)");
        return NULL;
    }
    Shard *shard = (Shard *)args[0];
    i64 now_ns = PyLong_AsLongLong(args[1]), companions_max = PyLong_AsLongLong(args[3]);
    Found found = {.most = PyLong_AsSsize_t(args[4])};
    int early = PyObject_IsTrue(args[2]);
    if (PyErr_Occurred() || early < 0 || (found.list = PyList_New(0)) == NULL) {
        return NULL;
    }
    int failed = take_wanted(shard, now_ns, early, &found);
    if (!failed && !found.more &&
        (!early || (PyList_GET_SIZE(found.list) > 0 && shard->stirred->count <= companions_max))) {
        failed = take_stirred(shard, &found);
    }
    if (!failed && !found.more) {
        failed = take_promised(shard, now_ns, &found);
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(found.list); at++) {
        ((Cell *)PyList_GET_ITEM(found.list, at))->taken = false;
    }
    if (failed) {
        Py_DECREF(found.list);
        return NULL;
    }
    return Py_BuildValue("(NN)", found.list, PyBool_FromLong(found.more));
}
