/* Makes many decisions in one call: `kernel/composite/many.py`. While it decides about some keys, the processor fetches
 * the data of the next keys from memory. */
#include "decide.h"
#include "python.h"

#define AT_ONCE 32
/* So many keys are fetched side by side. */

/* Whether the beginning of a key shows that it is certainly usable. */
static inline bool
surely_plain(const Store *store, PyObject *key)
{
    return PyUnicode_CheckExact(key) && PyUnicode_IS_COMPACT_ASCII(key) && PyUnicode_GET_LENGTH(key) > 0 &&
           PyUnicode_GET_LENGTH(key) <= store->key_bytes_max && *(const char *)PyUnicode_1BYTE_DATA(key) != 0;
}

/* One cost for each of `count` keys, if all are small whole numbers that could be admitted; else NULL. The caller
 * frees. */
static i64 *
plain_costs(const Store *store, PyObject *costs, Py_ssize_t count)
{
    i64 *plain = PyMem_Malloc((size_t)(count + 1) * sizeof(*plain));
    if (plain == NULL) {
        return NULL;
    }
    bool good = true;
    Py_buffer buffer;
    if (PyObject_CheckBuffer(costs) && PyObject_GetBuffer(costs, &buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) == 0) {
        good = buffer.itemsize == sizeof(i64) && buffer.len == count * (Py_ssize_t)sizeof(i64) && buffer.format != NULL &&
               (strcmp(buffer.format, "q") == 0 || strcmp(buffer.format, "l") == 0);
        if (good) {
            memcpy(plain, buffer.buf, (size_t)buffer.len);
        }
        PyBuffer_Release(&buffer);
    } else {
        PyErr_Clear();
        good = (PyList_CheckExact(costs) || PyTuple_CheckExact(costs)) && PySequence_Fast_GET_SIZE(costs) == count;
        for (Py_ssize_t at = 0; good && at < count; at++) {
            PyObject *cost = PySequence_Fast_GET_ITEM(costs, at);
            int overflow = 0;
            plain[at] = PyLong_CheckExact(cost) ? PyLong_AsLongLongAndOverflow(cost, &overflow) : -1;
            good = !overflow;
        }
    }
    for (Py_ssize_t at = 0; good && at < count; at++) {
        good = plain[at] >= 0 && plain[at] <= store->terms.cost_max;
    }
    if (!good) {
        PyMem_Free(plain);
        return NULL;
    }
    return plain;
}

/* Decide about some keys at once, into their places in the list; -1 with an error. */
static int
decide_some(Store *store, PyObject *const *keys, const i64 *costs, Py_ssize_t count, PyObject *list, Py_ssize_t from)
{
    i64 now_ns;
    if (read_clock(store, &now_ns) < 0) {
        return -1;
    }
    Asked asked = {0};
    store_fetch(store, keys, count);
    for (Py_ssize_t at = 0; at < count; at++) {
        asked.key = keys[at];
        asked.cost = costs == NULL ? 1 : costs[at];
        bool allowed = true;
        if (charged_at_once(store, &asked, CALLERS_CLOCK, &now_ns, false) == NULL &&
            decide_under_lock(store, &asked, now_ns, &allowed, NULL) < 0) {
            return -1;
        }
        PyList_SET_ITEM(list, from + at, Py_NewRef(allowed ? Py_True : Py_False));
    }
    return 0;
}

PyObject *
store_allow_many(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Store *store = (Store *)object;
    if (count < 1 || count > 2 || (names != NULL && PyTuple_GET_SIZE(names) > 0)) {
        PyErr_SetString(PyExc_TypeError, "allow_many(keys, costs=None)");
        return NULL;
    }
    if (UNLIKELY(store->lock == NULL)) {
        return no_limit_error();
    }
    PyObject *costs = count == 2 ? args[1] : Py_None, *list = NULL;
    PyObject *keys = store->terms.plain ? PySequence_Tuple(args[0]) : NULL; /* a tuple cannot change meanwhile */
    if (keys == NULL) {
        return store->terms.plain ? NULL : PyObject_CallFunctionObjArgs(python.allow_many, store->table, args[0], costs, NULL);
    }
    Py_ssize_t size = PyTuple_GET_SIZE(keys);
    bool plain = true;
    for (Py_ssize_t at = 0; plain && at < size; at++) {
        plain = surely_plain(store, PyTuple_GET_ITEM(keys, at));
    }
    i64 *each = plain && costs != Py_None ? plain_costs(store, costs, size) : NULL;
    if (!plain || (costs != Py_None && each == NULL)) {
        PyErr_Clear();
        list = PyObject_CallFunctionObjArgs(python.allow_many, store->table, keys, costs, NULL);
        Py_DECREF(keys);
        return list;
    }
    list = PyList_New(size);
    for (Py_ssize_t at = 0; list != NULL && at < size; at += AT_ONCE) {
        Py_ssize_t some = size - at < AT_ONCE ? size - at : AT_ONCE;
        PyObject *const *these = &PyTuple_GET_ITEM(keys, at);
        if (decide_some(store, these, each == NULL ? NULL : each + at, some, list, at) < 0) {
            Py_CLEAR(list);
        }
    }
    PyMem_Free(each);
    Py_DECREF(keys);
    return list;
}
