/* A cell, the record of one key of one limit: it has the attributes of `Cell` in Python, as C numbers. */
#include "native.h"

PyObject *
whole_from_amount(i128 amount)
{
    if (amount == (i64)amount) {
        return PyLong_FromLongLong((i64)amount);
    }
    PyObject *upper = PyLong_FromLongLong((i64)(amount >> 64));
    PyObject *lower = PyLong_FromUnsignedLongLong((uint64_t)amount);
    PyObject *by = PyLong_FromLong(64), *shifted = NULL, *whole = NULL;
    if (upper != NULL && lower != NULL && by != NULL && (shifted = PyNumber_Lshift(upper, by)) != NULL) {
        whole = PyNumber_Or(shifted, lower);
    }
    Py_XDECREF(upper);
    Py_XDECREF(lower);
    Py_XDECREF(by);
    Py_XDECREF(shifted);
    return whole;
}

int
amount_from_whole(PyObject *whole, i128 *amount)
{
    int overflow;
    i64 small = PyLong_AsLongLongAndOverflow(whole, &overflow);
    if (!overflow) {
        *amount = small;
        return small == -1 && PyErr_Occurred() ? -1 : 0;
    }
    PyObject *by = PyLong_FromLong(64), *shifted = by == NULL ? NULL : PyNumber_Rshift(whole, by);
    Py_XDECREF(by);
    if (shifted == NULL) {
        return -1;
    }
    i64 upper = PyLong_AsLongLong(shifted);
    Py_DECREF(shifted);
    if (upper == -1 && PyErr_Occurred()) {
        return -1;
    }
    uint64_t lower = PyLong_AsUnsignedLongLongMask(whole);
    if (lower == (uint64_t)-1 && PyErr_Occurred()) {
        return -1;
    }
    *amount = (i128)((unsigned __int128)upper << 64 | lower);
    return 0;
}

/* Python 3.11 collects garbage within an allocation, and finalizers may ask about any key: the thread would meet its
 * own lock, and places might change. So the collector is switched off here; the next allocation elsewhere collects
 * instead. The interpreter's lock is held all the while, so no other thread sees the collector switched off. */
Cell *
cell_new(PyObject *key, PyObject *table, Shard *shard, i64 capacity, i64 now_ns)
{
    int collects = PyGC_Disable();
    Cell *self = (Cell *)types.cell->tp_alloc(types.cell, 0);
    if (collects) {
        PyGC_Enable();
    }
    if (self == NULL) {
        return NULL;
    }
    self->key = Py_NewRef(key);
    self->table = Py_NewRef(table);
    self->shard = (Shard *)Py_NewRef((PyObject *)shard);
    self->lows = Py_NewRef(Py_None);
    self->history = Py_NewRef(Py_None);
#define BEGIN(name, first) self->name = (first);
    CELL_FIELDS(BEGIN)
    self->capacity = capacity;
    return self;
}

static PyObject *
Cell_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"key", "table", "shard", "now_ns", NULL};
    PyObject *key, *table, *shard;
    long long now_ns;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UOO!L:Cell", names, &key, &table, types.shard, &shard, &now_ns)) {
        return NULL;
    }
    PyObject *capacity = PyObject_GetAttrString(table, "capacity");
    if (capacity == NULL) {
        return NULL;
    }
    i64 whole = PyLong_AsLongLong(capacity);
    Py_DECREF(capacity);
    if (whole == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return (PyObject *)cell_new(key, table, (Shard *)shard, whole, now_ns);
}

static int
Cell_traverse(PyObject *object, visitproc visit, void *arg)
{
    Cell *self = (Cell *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->table);
    Py_VISIT(self->shard);
    Py_VISIT(self->store);
    Py_VISIT(self->lows);
    Py_VISIT(self->history);
    return 0;
}

static int
Cell_clear(PyObject *object)
{
    Cell *self = (Cell *)object;
    Py_CLEAR(self->table);
    Py_CLEAR(self->shard);
    Py_CLEAR(self->store);
    Py_CLEAR(self->lows);
    Py_CLEAR(self->history);
    return 0;
}

static void
Cell_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    agenda_forget((Cell *)object);
    Cell_clear(object);
    Py_CLEAR(((Cell *)object)->key);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
Cell_get_due_ns(PyObject *object, void *Py_UNUSED(closure))
{
    const Group *group = ((Cell *)object)->group;
    return PyLong_FromLongLong(group != NULL && group->agenda != NULL ? group->due_ns : NEVER_NS);
}

static PyObject *
Cell_get_heard(PyObject *object, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Cell *)object)->heard_ns > -NEVER_NS);
}

static PyObject *
Cell_get_confirmed(PyObject *object, void *Py_UNUSED(closure))
{
    Cell *self = (Cell *)object;
    return Py_BuildValue("LLL", (long long)self->confirmed_epoch, (long long)self->confirmed_current,
                         (long long)self->confirmed_previous);
}

static int
Cell_set_confirmed(PyObject *object, PyObject *value, void *Py_UNUSED(closure))
{
    Cell *self = (Cell *)object;
    long long epoch, current, previous;
    if (value == NULL || !PyTuple_Check(value) || !PyArg_ParseTuple(value, "LLL", &epoch, &current, &previous)) {
        return -1;
    }
    self->confirmed_epoch = epoch;
    self->confirmed_current = current;
    self->confirmed_previous = previous;
    return 0;
}

static PyObject *
Cell_get_amount(PyObject *object, void *offset)
{
    return whole_from_amount(*(i128 *)((char *)object + (intptr_t)offset));
}

static int
Cell_set_amount(PyObject *object, PyObject *value, void *offset)
{
    if (value == NULL) {
        PyErr_SetString(PyExc_TypeError, "an amount cannot be deleted");
        return -1;
    }
    return amount_from_whole(value, (i128 *)((char *)object + (intptr_t)offset));
}

#define WHOLE(name, first) {#name, T_LONGLONG, offsetof(Cell, name), 0, NULL},
#define RATE(name) {#name, T_DOUBLE, offsetof(Cell, name), 0, NULL},
#define MARK(name) {#name, T_BOOL, offsetof(Cell, name), 0, NULL},
static PyMemberDef Cell_members[] = {
    {"key", T_OBJECT_EX, offsetof(Cell, key), READONLY, NULL},
    {"table", T_OBJECT_EX, offsetof(Cell, table), 0, NULL},
    {"shard", T_OBJECT_EX, offsetof(Cell, shard), READONLY, NULL},
    {"lows", T_OBJECT, offsetof(Cell, lows), 0, NULL},
    {"history", T_OBJECT, offsetof(Cell, history), 0, NULL},
    CELL_FIELDS(WHOLE)
    CELL_RATES(RATE)
    CELL_MARKS(MARK)
    {"dirty", T_BYTE, offsetof(Cell, dirty), 0, NULL},
    {NULL},
};

#define AMOUNT(name) {#name, Cell_get_amount, Cell_set_amount, NULL, (void *)offsetof(Cell, name)},
static PyGetSetDef Cell_properties[] = {
    {"due_ns", Cell_get_due_ns, NULL, NULL, NULL},
    {"heard", Cell_get_heard, NULL, NULL, NULL},
    {"confirmed", Cell_get_confirmed, Cell_set_confirmed, NULL, NULL},
    CELL_AMOUNTS(AMOUNT)
    {NULL},
};

static PyType_Slot Cell_slots[] = {
    {Py_tp_new, Cell_new},
    {Py_tp_traverse, Cell_traverse},
    {Py_tp_clear, Cell_clear},
    {Py_tp_dealloc, Cell_dealloc},
    {Py_tp_members, Cell_members},
    {Py_tp_getset, Cell_properties},
    {0, NULL},
};

PyType_Spec Cell_spec = {
    .name = "reconverge.kernel._native.Cell",
    .basicsize = sizeof(Cell),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Cell_slots,
};
