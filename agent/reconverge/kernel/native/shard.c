/* Base classes for the shard, the tally (a limit's sums) and the kernel, with the fields that C and Python both use. */
#include "native.h"

static int
Shard_traverse(PyObject *object, visitproc visit, void *arg)
{
    Shard *self = (Shard *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->dirty);
    Py_VISIT(self->round);
    Py_VISIT(self->urgent);
    Py_VISIT(self->agenda);
    return 0;
}

static int
Shard_clear(PyObject *object)
{
    Shard *self = (Shard *)object;
    Py_CLEAR(self->dirty);
    Py_CLEAR(self->round);
    Py_CLEAR(self->urgent);
    Py_CLEAR(self->agenda);
    return 0;
}

static void
Shard_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Shard_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Forget all due reports. */
static PyObject *
Shard_begin(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Shard *self = (Shard *)object;
    PyObject *dirty = PyObject_CallNoArgs((PyObject *)types.lanes);
    PyObject *round = PyObject_CallNoArgs((PyObject *)types.lanes);
    PyObject *urgent = PyObject_CallNoArgs((PyObject *)types.lanes);
    PyObject *agenda = PyObject_CallNoArgs((PyObject *)types.agenda);
    if (dirty == NULL || round == NULL || urgent == NULL || agenda == NULL) {
        Py_XDECREF(dirty);
        Py_XDECREF(round);
        Py_XDECREF(urgent);
        Py_XDECREF(agenda);
        return NULL;
    }
    ((Lanes *)dirty)->number = 1;
    ((Lanes *)round)->number = 2;
    Py_XSETREF(self->dirty, (Lanes *)dirty);
    Py_XSETREF(self->round, (Lanes *)round);
    Py_XSETREF(self->urgent, (Lanes *)urgent);
    Py_XSETREF(self->agenda, (Agenda *)agenda);
    Py_RETURN_NONE;
}

/* Begin a round of the cells that are dirty now. */
static PyObject *
Shard_begin_round(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Shard *self = (Shard *)object;
    Lanes *dirty = self->dirty;
    self->dirty = self->round;
    self->round = dirty;
    Py_RETURN_NONE;
}

static PyMethodDef Shard_methods[] = {
    {"begin", Shard_begin, METH_NOARGS, NULL},
    {"begin_round", Shard_begin_round, METH_NOARGS, NULL},
    {NULL},
};

#define MEMBER(name) {#name, T_LONGLONG, offsetof(Shard, name), 0, NULL},
static PyMemberDef Shard_members[] = {
    SHARD_FIELDS(MEMBER)
    {"alone", T_BOOL, offsetof(Shard, alone), 0, NULL},
    {"dirty", T_OBJECT_EX, offsetof(Shard, dirty), READONLY, NULL},
    {"round", T_OBJECT_EX, offsetof(Shard, round), READONLY, NULL},
    {"urgent", T_OBJECT_EX, offsetof(Shard, urgent), READONLY, NULL},
    {"agenda", T_OBJECT_EX, offsetof(Shard, agenda), READONLY, NULL},
    {NULL},
};

static PyType_Slot Shard_slots[] = {
    {Py_tp_members, Shard_members},
    {Py_tp_methods, Shard_methods},
    {Py_tp_traverse, Shard_traverse},
    {Py_tp_clear, Shard_clear},
    {Py_tp_dealloc, Shard_dealloc},
    {0, NULL},
};

PyType_Spec Shard_spec = {
    .name = "reconverge.kernel._native.ShardFields",
    .basicsize = sizeof(Shard),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = Shard_slots,
};

static void
free_numbers(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static int
Tally_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Tally *)object)->fresh);
    return 0;
}

static int
Tally_clear(PyObject *object)
{
    Py_CLEAR(((Tally *)object)->fresh);
    return 0;
}

static void
Tally_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Tally_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

/* No key waits. */
static PyObject *
Tally_begin(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Tally *self = (Tally *)object;
    Queue *fresh = (Queue *)PyObject_CallNoArgs((PyObject *)types.queue);
    if (fresh == NULL) {
        return NULL;
    }
    Py_XSETREF(self->fresh, fresh);
    self->fresh_from_ns = -NEVER_NS;
    Py_RETURN_NONE;
}

static PyMethodDef Tally_methods[] = {
    {"begin", Tally_begin, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef Tally_members[] = {
    {"charged", T_LONGLONG, offsetof(Tally, charged), 0, NULL},
    {"refunded", T_LONGLONG, offsetof(Tally, refunded), 0, NULL},
    {"fresh_from_ns", T_LONGLONG, offsetof(Tally, fresh_from_ns), 0, NULL},
    {"fresh", T_OBJECT_EX, offsetof(Tally, fresh), READONLY, NULL},
    {NULL},
};

static PyType_Slot Tally_slots[] = {
    {Py_tp_members, Tally_members},
    {Py_tp_methods, Tally_methods},
    {Py_tp_traverse, Tally_traverse},
    {Py_tp_clear, Tally_clear},
    {Py_tp_dealloc, Tally_dealloc},
    {0, NULL},
};

PyType_Spec Tally_spec = {
    .name = "reconverge.kernel._native.TallyFields",
    .basicsize = sizeof(Tally),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = Tally_slots,
};

static PyMemberDef Kernel_members[] = {
    {"keys", T_LONGLONG, offsetof(KernelFields, keys), 0, NULL},
    {"keys_max", T_LONGLONG, offsetof(KernelFields, keys_max), 0, NULL},
    {"turn", T_LONGLONG, offsetof(KernelFields, turn), 0, NULL},
    {"after_unlock", T_BOOL, offsetof(KernelFields, after_unlock), 0, NULL},
    {"wake_wanted", T_BOOL, offsetof(KernelFields, wake_wanted), 0, NULL},
    {NULL},
};

static PyType_Slot Kernel_slots[] = {
    {Py_tp_members, Kernel_members},
    {Py_tp_dealloc, free_numbers},
    {0, NULL},
};

PyType_Spec Kernel_spec = {
    .name = "reconverge.kernel._native.KernelFields",
    .basicsize = sizeof(KernelFields),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = Kernel_slots,
};
