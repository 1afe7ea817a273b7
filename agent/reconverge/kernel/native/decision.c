/* The class Decision, an answer to a request with its grounds; its fields become Python objects when they are read. */
#include <stddef.h>
#include "decision.h"

PyObject *
new_decision(void)
{
    return types.decision->tp_alloc(types.decision, 0);
}

/* Whether one admission has less left than another. */
static bool
is_scarcer(const Decision *one, const Decision *other)
{
    if (one->over_quota != other->over_quota) {
        return one->over_quota;
    }
    return one->remaining != other->remaining ? one->remaining < other->remaining : one->reset_after > other->reset_after;
}

/* Return the admission with the least left, certain if all are, as `binding` in `kernel/composite/all_of.py` does. They
 * are new, and consumed. */
PyObject *
binding_admission(PyObject *const *decisions, Py_ssize_t size)
{
    Decision *found = (Decision *)decisions[0];
    char certain = found->certain;
    for (Py_ssize_t at = 1; at < size; at++) {
        Decision *one = (Decision *)decisions[at];
        certain = certain && one->certain;
        Decision *left = is_scarcer(one, found) ? found : one;
        found = left == found ? one : found;
        Py_DECREF(left);
    }
    found->certain = certain;
    return (PyObject *)found;
}

static PyObject *
Decision_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"allowed",   "limit",   "remaining",  "retry_after", "reset_after",
                            "staleness", "binding", "over_quota", "borrowed",    "certain", NULL};
    int allowed, over_quota = 0, borrowed = 0, certain = 1;
    long long limit, remaining;
    double retry_after, reset_after, staleness;
    PyObject *binding = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "pLLddd|Uppp:Decision", names, &allowed, &limit, &remaining,
                                     &retry_after, &reset_after, &staleness, &binding, &over_quota, &borrowed,
                                     &certain)) {
        return NULL;
    }
    Decision *self = (Decision *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->allowed = (char)allowed;
    self->over_quota = (char)over_quota;
    self->borrowed = (char)borrowed;
    self->certain = (char)certain;
    self->limit = limit;
    self->remaining = remaining;
    self->retry_after = retry_after;
    self->reset_after = reset_after;
    self->staleness = staleness;
    self->binding = binding == NULL ? PyUnicode_FromString("") : Py_NewRef(binding);
    return (PyObject *)self;
}

static void
Decision_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((Decision *)object)->binding);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
fields(PyObject *object)
{
    Decision *self = (Decision *)object;
    return Py_BuildValue("(NLLdddONNN)", PyBool_FromLong(self->allowed), (long long)self->limit,
                         (long long)self->remaining, self->retry_after, self->reset_after, self->staleness,
                         self->binding, PyBool_FromLong(self->over_quota), PyBool_FromLong(self->borrowed),
                         PyBool_FromLong(self->certain));
}

static PyObject *
Decision_repr(PyObject *object)
{
    PyObject *all = fields(object);
    PyObject *name = PyType_GetQualName(Py_TYPE(object));
    PyObject *form = PyUnicode_FromString("(allowed=%r, limit=%r, remaining=%r, retry_after=%r, reset_after=%r, "
                                          "staleness=%r, binding=%r, over_quota=%r, borrowed=%r, certain=%r)");
    PyObject *fields = all == NULL || form == NULL ? NULL : PyUnicode_Format(form, all);
    PyObject *text = name == NULL || fields == NULL ? NULL : PyUnicode_Concat(name, fields);
    Py_XDECREF(name);
    Py_XDECREF(fields);
    Py_XDECREF(form);
    Py_XDECREF(all);
    return text;
}

static Py_hash_t
Decision_hash(PyObject *object)
{
    PyObject *all = fields(object);
    Py_hash_t hash = all == NULL ? -1 : PyObject_Hash(all);
    Py_XDECREF(all);
    return hash;
}

static PyObject *
Decision_compare(PyObject *one, PyObject *other, int how)
{
    bool equality = how == Py_EQ || how == Py_NE;
    if (PyBool_Check(other) || (!equality && (PyLong_Check(other) || PyFloat_Check(other)))) {
        return PyErr_Format(PyExc_TypeError, "a decision is compared with %S; write: if decision, if not decision, or use .allowed",
                            other);
    }
    /* Only with the very same type, as dataclasses do; both are decisions then, as one of them is. */
    if (!equality || !Py_IS_TYPE(one, Py_TYPE(other))) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *ones = fields(one), *others = fields(other);
    PyObject *answer = ones == NULL || others == NULL ? NULL : PyObject_RichCompare(ones, others, how);
    Py_XDECREF(ones);
    Py_XDECREF(others);
    return answer;
}

/* The methods that a decision has only to name the remedy when they are called. */
static PyObject *
Decision_iter(PyObject *Py_UNUSED(object))
{
    PyErr_SetString(PyExc_TypeError,
                    "a decision is one object; read its attributes, as in decision.allowed, decision.retry_after");
    return NULL;
}

static PyObject *
Decision_block(PyObject *Py_UNUSED(object), PyObject *Py_UNUSED(ignored))
{
    PyErr_SetString(PyExc_TypeError,
                    "a decision has no block; write: if decision, or a block with limiter.reserve(key, cost)");
    return NULL;
}

static int
Decision_bool(PyObject *object)
{
    return ((Decision *)object)->allowed;
}

static PyObject *
Decision_reduce(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    PyObject *all = fields(object);
    return all == NULL ? NULL : Py_BuildValue("(ON)", Py_TYPE(object), all);
}

static PyMemberDef Decision_members[] = {
    {"allowed", T_BOOL, offsetof(Decision, allowed), READONLY, NULL},
    {"limit", T_LONGLONG, offsetof(Decision, limit), READONLY, NULL},
    {"remaining", T_LONGLONG, offsetof(Decision, remaining), READONLY, NULL},
    {"retry_after", T_DOUBLE, offsetof(Decision, retry_after), READONLY, NULL},
    {"reset_after", T_DOUBLE, offsetof(Decision, reset_after), READONLY, NULL},
    {"staleness", T_DOUBLE, offsetof(Decision, staleness), READONLY, NULL},
    {"binding", T_OBJECT_EX, offsetof(Decision, binding), READONLY, NULL},
    {"over_quota", T_BOOL, offsetof(Decision, over_quota), READONLY, NULL},
    {"borrowed", T_BOOL, offsetof(Decision, borrowed), READONLY, NULL},
    {"certain", T_BOOL, offsetof(Decision, certain), READONLY, NULL},
    {NULL},
};

static PyMethodDef Decision_methods[] = {
    {"__reduce__", Decision_reduce, METH_NOARGS, NULL},
    {"__enter__", Decision_block, METH_NOARGS, NULL},
    {"__exit__", Decision_block, METH_VARARGS, NULL},
    {NULL},
};

static PyType_Slot Decision_slots[] = {
    {Py_tp_doc, (void *)"Whether a request may go on, with the grounds for it. True when allowed."},
    {Py_tp_new, Decision_new},
    {Py_tp_dealloc, Decision_dealloc},
    {Py_tp_repr, Decision_repr},
    {Py_tp_hash, Decision_hash},
    {Py_tp_richcompare, Decision_compare},
    {Py_tp_iter, Decision_iter},
    {Py_nb_bool, Decision_bool},
    {Py_tp_members, Decision_members},
    {Py_tp_methods, Decision_methods},
    {0, NULL},
};

PyType_Spec Decision_spec = {
    .name = "reconverge.kernel._native.Decision",
    .basicsize = sizeof(Decision),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, /* subclasses are the decisions in shadow and off */
    .slots = Decision_slots,
};
