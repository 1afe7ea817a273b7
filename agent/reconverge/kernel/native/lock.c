/* A lock of which the fast path can see, without touching it, whether somebody holds it. */
#include "native.h"

bool
lock_enter(Lock *lock)
{
    if (!PyThread_acquire_lock(lock->inner, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(lock->inner, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
    lock->held = true;
    return true;
}

void
lock_leave(Lock *lock)
{
    lock->held = false;
    PyThread_release_lock(lock->inner);
}

static PyObject *
Lock_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    if (!PyArg_ParseTuple(args, ":Lock")) {
        return NULL;
    }
    Lock *self = (Lock *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->inner = PyThread_allocate_lock();
    if (self->inner == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void
Lock_dealloc(PyObject *object)
{
    Lock *self = (Lock *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->inner != NULL) {
        if (self->held) {
            PyThread_release_lock(self->inner);
        }
        PyThread_free_lock(self->inner);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
Lock_acquire(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"blocking", NULL};
    Lock *self = (Lock *)object;
    int blocking = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p:acquire", names, &blocking)) {
        return NULL;
    }
    if (blocking) {
        lock_enter(self);
        Py_RETURN_TRUE;
    }
    if (!PyThread_acquire_lock(self->inner, NOWAIT_LOCK)) {
        Py_RETURN_FALSE;
    }
    self->held = true;
    Py_RETURN_TRUE;
}

static PyObject *
Lock_release(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Lock *self = (Lock *)object;
    if (!self->held) {
        PyErr_SetString(PyExc_RuntimeError, "release of a lock that nobody holds");
        return NULL;
    }
    lock_leave(self);
    Py_RETURN_NONE;
}

static PyObject *
Lock_enter(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    lock_enter((Lock *)object);
    Py_RETURN_TRUE;
}

static PyObject *
Lock_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    return Lock_release(object, NULL);
}

static PyObject *
Lock_locked(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(((Lock *)object)->held);
}

static PyMethodDef Lock_methods[] = {
    {"acquire", (PyCFunction)(void (*)(void))Lock_acquire, METH_VARARGS | METH_KEYWORDS, NULL},
    {"release", Lock_release, METH_NOARGS, NULL},
    {"locked", Lock_locked, METH_NOARGS, NULL},
    {"__enter__", Lock_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))Lock_exit, METH_FASTCALL, NULL},
    {NULL},
};

static PyType_Slot Lock_slots[] = {
    {Py_tp_new, Lock_new},
    {Py_tp_dealloc, Lock_dealloc},
    {Py_tp_methods, Lock_methods},
    {0, NULL},
};

PyType_Spec Lock_spec = {
    .name = "reconverge.kernel._native.Lock",
    .basicsize = sizeof(Lock),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = Lock_slots,
};
