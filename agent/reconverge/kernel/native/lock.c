/* The lock of a limit, which knows the thread that holds it: `kernel/lock.py` has the rules.
 *
 * While C holds such a lock, it never gives up the interpreter's lock, and runs no foreign code: no function in Python,
 * no finalizer, no collection (see `cell_new`). So C never waits for itself. Python also holds the lock, by `run`, for
 * work in Python; then signals and collections come at any instruction, and may ask for a decision that needs the same
 * lock on the same thread. Such a call fails instead of waiting for itself. So does one of a thread that is in the
 * middle of another decision, because two threads could wait for each other.
 *
 * `run` calls the work from C, so there is no instruction between taking the lock and the work, nor between the work
 * and the release: an exception at any instruction leaves the lock free.
 */
#include "python.h"

/* How many locks of limits this thread holds. The address of this variable identifies the thread. */
static _Thread_local int holding;

bool
lock_enter(Lock *lock)
{
    if (!PyThread_acquire_lock(lock->inner, NOWAIT_LOCK)) {
        if (holding > 0) {
            return false;
        }
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(lock->inner, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
    lock->held = &holding;
    holding++;
    return true;
}

bool
lock_enter_if_free(Lock *lock)
{
    if (!PyThread_acquire_lock(lock->inner, NOWAIT_LOCK)) {
        return false;
    }
    lock->held = &holding;
    holding++;
    return true;
}

void
lock_leave(Lock *lock)
{
    lock->held = NULL;
    holding--;
    PyThread_release_lock(lock->inner);
}

int
do_after_unlock(KernelFields *kernel)
{
    if (LIKELY(!kernel->after_unlock)) {
        return 0;
    }
    PyObject *type, *value, *trace; /* of an error that is on its way out */
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = PyObject_CallMethod((PyObject *)kernel, "do_after_unlock", NULL);
    Py_XDECREF(done);
    if (type == NULL) {
        return done == NULL ? -1 : 0;
    }
    if (done == NULL) {
        PyErr_WriteUnraisable((PyObject *)kernel);
    }
    PyErr_Restore(type, value, trace);
    return 0;
}

void
raise_reentry(void)
{
    PyErr_SetString(types.reentry, "this thread is in the middle of a decision about the same limit");
}

static PyObject *
Lock_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *kernel;
    if (!PyArg_ParseTuple(args, "O!:Lock", types.kernel, &kernel)) {
        return NULL;
    }
    Lock *self = (Lock *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->kernel = (KernelFields *)Py_NewRef(kernel);
    self->inner = PyThread_allocate_lock();
    if (self->inner == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int
Lock_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Lock *)object)->kernel);
    return 0;
}

/* Does not clear the kernel, because the holder of a lock needs it after the unlock. Kernels break the cycle. */
static void
Lock_dealloc(PyObject *object)
{
    Lock *self = (Lock *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->inner != NULL) {
        if (self->held != NULL) {
            /* No code will release the lock any more. Another thread's count stays as it is, as that thread may have
             * ended. */
            if (self->held == &holding && holding > 0) {
                holding--;
            }
            PyThread_release_lock(self->inner);
        }
        PyThread_free_lock(self->inner);
    }
    Py_XDECREF(self->kernel);
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
        if (!lock_enter(self)) {
            raise_reentry();
            return NULL;
        }
        Py_RETURN_TRUE;
    }
    return PyBool_FromLong(lock_enter_if_free(self));
}

static PyObject *
Lock_release(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Lock *self = (Lock *)object;
    if (self->held != &holding) {
        PyErr_SetString(PyExc_RuntimeError, "release of a lock that this thread does not hold");
        return NULL;
    }
    lock_leave(self);
    return do_after_unlock(self->kernel) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
Lock_enter(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    if (!lock_enter((Lock *)object)) {
        raise_reentry();
        return NULL;
    }
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
    return PyBool_FromLong(((Lock *)object)->held != NULL);
}

static PyObject *
run(Lock *lock, PyObject *const *args, Py_ssize_t count)
{
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, (size_t)(count - 1), NULL);
    lock_leave(lock);
    if (do_after_unlock(lock->kernel) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

/* run(work, *args): what `work` returns, which is called with the lock held. Raises Reentry. */
static PyObject *
Lock_run(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "run(work, *args)");
        return NULL;
    }
    if (!lock_enter((Lock *)object)) {
        raise_reentry();
        return NULL;
    }
    return run((Lock *)object, args, count);
}

/* run_if_free(work, *args): the same, unless the lock is held; then nothing is done. */
static PyObject *
Lock_run_if_free(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Lock *self = (Lock *)object;
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "run_if_free(work, *args)");
        return NULL;
    }
    if (!lock_enter_if_free(self)) {
        Py_RETURN_NONE;
    }
    return run(self, args, count);
}

static PyMethodDef Lock_methods[] = {
    {"run", (PyCFunction)(void (*)(void))Lock_run, METH_FASTCALL, NULL},
    {"run_if_free", (PyCFunction)(void (*)(void))Lock_run_if_free, METH_FASTCALL, NULL},
    {"acquire", (PyCFunction)(void (*)(void))Lock_acquire, METH_VARARGS | METH_KEYWORDS, NULL},
    {"release", Lock_release, METH_NOARGS, NULL},
    {"locked", Lock_locked, METH_NOARGS, NULL},
    {"__enter__", Lock_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))Lock_exit, METH_FASTCALL, NULL},
    {NULL},
};

static PyType_Slot Lock_slots[] = {
    {Py_tp_new, Lock_new},
    {Py_tp_traverse, Lock_traverse},
    {Py_tp_dealloc, Lock_dealloc},
    {Py_tp_methods, Lock_methods},
    {0, NULL},
};

PyType_Spec Lock_spec = {
    .name = "reconverge.kernel._native.Lock",
    .basicsize = sizeof(Lock),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Lock_slots,
};
