/* The reports and answers of a batch: one row of numbers for each cell; a row becomes a CellReport when it is read. */
#include "answers.h"
#include "places.h"

#include "cells.h"
#include "python.h"

/* ------------------------------------------------------------------ rows and the tuples that they stand for */

/* Numbers out of a tuple of whole numbers, from place `from` on; -1 with an error. */
static int
numbers_from(PyObject *tuple, Py_ssize_t from, i64 *numbers, Py_ssize_t count)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != from + count) {
        PyErr_SetString(PyExc_TypeError, "a report or an answer has fields of its own");
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        numbers[at] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, from + at));
        if (numbers[at] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
as_tuple(const Reports *reports, Py_ssize_t at)
{
    const i64 *numbers = (const i64 *)&reports->rows[at];
    PyObject *fields[1 + sizeof(Report) / sizeof(i64)] = {NULL};
    Py_ssize_t made = 0;
    for (; made < REPORT_FIELDS; made++) {
        /* The key stands after the number of the limit. */
        PyObject *number = PyLong_FromLongLong(numbers[made]);
        if (number == NULL) {
            break;
        }
        fields[made == 0 ? 0 : made + 1] = number;
    }
    fields[1] = reports->cells[at]->key;
    PyObject *report = made < REPORT_FIELDS ? NULL : PyObject_Vectorcall(python.cell_report, fields, REPORT_FIELDS + 1, NULL);
    for (Py_ssize_t field = 0; field <= REPORT_FIELDS; field++) {
        if (field != 1) {
            Py_XDECREF(fields[field]);
        }
    }
    return report;
}

/* A CellReport or NULL with an error back into a row. */
static int
row_from(PyObject *report, Report *row)
{
    i64 *numbers = (i64 *)row;
    numbers[0] = PyLong_AsLongLong(PyTuple_GET_ITEM(report, 0));
    return PyErr_Occurred() ? -1 : numbers_from(report, 2, numbers + 1, REPORT_FIELDS - 1);
}

/* ------------------------------------------------------------------ as a sequence */

static int
Reports_traverse(PyObject *object, visitproc visit, void *arg)
{
    Reports *self = (Reports *)object;
    Py_VISIT(Py_TYPE(object));
    for (Py_ssize_t at = 0; at < self->count; at++) {
        Py_VISIT(self->cells[at]);
    }
    return 0;
}

static int
Reports_clear(PyObject *object)
{
    Reports *self = (Reports *)object;
    while (self->count > 0) {
        Py_DECREF(self->cells[--self->count]);
    }
    return 0;
}

/* The batch is answered: free the objects of keys without frequent requests. */
static void
release_all_cells(Reports *self)
{
    while (self->count > 0) {
        Cell *cell = self->cells[--self->count];
        const Report *row = &self->rows[self->count];
        if (row->asked > 0 && (cell->charged > row->asked || row->asked >= ASKS)) {
            Py_DECREF(cell); /* it has had requests before and has them again: its object stays */
        } else {
            let_rest(cell);
        }
    }
}

static void
Reports_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    release_all_cells((Reports *)object);
    Reports_clear(object);
    PyMem_Free(((Reports *)object)->cells);
    PyMem_Free(((Reports *)object)->rows);
    type->tp_free(object);
    Py_DECREF(type);
}

static Py_ssize_t
Reports_length(PyObject *object)
{
    return ((Reports *)object)->count;
}

static PyObject *
Reports_item(PyObject *object, Py_ssize_t at)
{
    Reports *self = (Reports *)object;
    if (at < 0 || at >= self->count) {
        PyErr_SetString(PyExc_IndexError, "there are fewer reports");
        return NULL;
    }
    return as_tuple(self, at);
}

static PyObject *
Reports_subscript(PyObject *object, PyObject *index)
{
    if (PyIndex_Check(index)) {
        Py_ssize_t at = PyNumber_AsSsize_t(index, PyExc_IndexError);
        if (at == -1 && PyErr_Occurred()) {
            return NULL;
        }
        return Reports_item(object, at < 0 ? at + ((Reports *)object)->count : at);
    }
    PyObject *all = PySequence_Tuple(object), *part = all == NULL ? NULL : PyObject_GetItem(all, index);
    Py_XDECREF(all);
    return part;
}

static PyObject *
Reports_compare(PyObject *one, PyObject *other, int how)
{
    if ((how != Py_EQ && how != Py_NE) || !Py_IS_TYPE(one, types.reports)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *ones = PySequence_Tuple(one), *answer = NULL;
    PyObject *others = Py_IS_TYPE(other, types.reports) ? PySequence_Tuple(other) : Py_NewRef(other);
    if (ones != NULL && others != NULL) {
        answer = PyObject_RichCompare(ones, others, how);
    }
    Py_XDECREF(ones);
    Py_XDECREF(others);
    return answer;
}

static PyObject *
Reports_repr(PyObject *object)
{
    PyObject *all = PySequence_Tuple(object), *text = all == NULL ? NULL : PyObject_Repr(all);
    Py_XDECREF(all);
    return text;
}

static PyObject *
Reports_get_cells(PyObject *object, void *Py_UNUSED(closure))
{
    Reports *self = (Reports *)object;
    PyObject *list = PyList_New(self->count);
    for (Py_ssize_t at = 0; list != NULL && at < self->count; at++) {
        PyList_SET_ITEM(list, at, Py_NewRef((PyObject *)self->cells[at]));
    }
    return list;
}

/* ------------------------------------------------------------------ as they travel; `hub/report.py` says how */

static inline char *
put(char *to, const void *number, size_t size)
{
    memcpy(to, number, size);
    return to + size;
}

/* The amounts of a row, which are all but the epoch, the moment of the reset and the limit. */
#define AMOUNTS(X)                                                                                                   \
    X(current) X(previous) X(allowance) X(base) X(overdraft) X(need_milli) X(ask) X(asked) X(demand_milli) X(window_demand)

static inline bool
is_narrow(const Report *row)
{
#define IS_NARROW(name) &&row->name >= 0 && row->name <= UINT32_MAX
    return row->current >= INT32_MIN && row->current <= INT32_MAX IS_NARROW(previous) IS_NARROW(allowance) IS_NARROW(base)
        IS_NARROW(overdraft) IS_NARROW(need_milli) IS_NARROW(ask) IS_NARROW(asked) IS_NARROW(demand_milli)
            IS_NARROW(window_demand);
}

static PyObject *
Reports_rows(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    const Reports *self = (Reports *)object;
    bool narrow = true;
    for (Py_ssize_t at = 0; at < self->count && narrow; at++) {
        narrow = is_narrow(&self->rows[at]);
    }
    Py_ssize_t size = narrow ? 60 : 104;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, self->count * size);
    if (bytes == NULL) {
        return NULL;
    }
    char *to = PyBytes_AS_STRING(bytes);
    for (Py_ssize_t at = 0; at < self->count; at++) {
        const Report *row = &self->rows[at];
        to = put(to, &row->epoch, 8);
        to = put(to, &row->reset_us, 8);
        /* Little-endian, so that the lower half of a number is where it begins. */
        to = put(to, &row->limit, narrow ? 4 : 8);
#define PUT(name) to = put(to, &row->name, narrow ? 4 : 8);
        AMOUNTS(PUT)
    }
    return bytes;
}

/* The key of a cell after the prefix of its limit; NULL with an error. */
static PyObject *
name_of(const Reports *reports, Py_ssize_t at, PyObject *prefixes)
{
    i64 limit = reports->rows[at].limit;
    PyObject *prefix = limit < PySequence_Fast_GET_SIZE(prefixes) ? PySequence_Fast_GET_ITEM(prefixes, limit) : NULL;
    if (prefix == NULL || !PyBytes_Check(prefix)) {
        PyErr_SetString(PyExc_ValueError, "there is a prefix of bytes for each limit");
        return NULL;
    }
    Py_ssize_t length;
    const char *key = PyUnicode_AsUTF8AndSize(reports->cells[at]->key, &length);
    PyObject *name = key == NULL ? NULL : PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(prefix) + length);
    if (name != NULL) {
        put(put(PyBytes_AS_STRING(name), PyBytes_AS_STRING(prefix), (size_t)PyBytes_GET_SIZE(prefix)), key,
            (size_t)length);
    }
    return name;
}

static PyObject *
names_of(const Reports *reports, PyObject *prefixes)
{
    PyObject *names = PyList_New(reports->count);
    for (Py_ssize_t at = 0; names != NULL && at < reports->count; at++) {
        PyObject *name = name_of(reports, at, prefixes);
        if (name == NULL) {
            Py_CLEAR(names);
        } else {
            PyList_SET_ITEM(names, at, name);
        }
    }
    return names;
}

static PyObject *
Reports_names(PyObject *object, PyObject *given)
{
    PyObject *prefixes = PySequence_Fast(given, "prefixes are a sequence of bytes");
    PyObject *names = prefixes == NULL ? NULL : names_of((Reports *)object, prefixes);
    Py_XDECREF(prefixes);
    return names;
}

static PyMethodDef Reports_methods[] = {
    {"names", Reports_names, METH_O, PyDoc_STR("The key of each in UTF-8, after the prefix of its limit.")},
    {"rows", Reports_rows, METH_NOARGS, PyDoc_STR("The reports without their keys, as they travel.")},
    {NULL},
};

static PyGetSetDef Reports_properties[] = {
    {"cells", Reports_get_cells, NULL, PyDoc_STR("The cells that are reported."), NULL},
    {NULL},
};

static PyType_Slot Reports_slots[] = {
    {Py_tp_doc, (void *)"The reports of one batch, in the order of their cells."},
    {Py_tp_traverse, Reports_traverse},
    {Py_tp_clear, Reports_clear},
    {Py_tp_dealloc, Reports_dealloc},
    {Py_tp_richcompare, Reports_compare},
    {Py_tp_hash, PyObject_HashNotImplemented},
    {Py_tp_repr, Reports_repr},
    {Py_tp_getset, Reports_properties},
    {Py_tp_methods, Reports_methods},
    {Py_sq_length, Reports_length},
    {Py_sq_item, Reports_item},
    {Py_mp_length, Reports_length},
    {Py_mp_subscript, Reports_subscript},
    {0, NULL},
};

PyType_Spec Reports_spec = {
    .name = "reconverge.kernel._native.Reports",
    .basicsize = sizeof(Reports),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_SEQUENCE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = Reports_slots,
};

/* ------------------------------------------------------------------ making the reports */

/* The number of a cell's limit among those of the batch, which gets one now if it has none. */
static int
number_of(PyObject *table, PyObject *indexes, i64 *number)
{
    PyObject *name = PyObject_GetAttrString(table, "name"), *next = PyLong_FromSsize_t(PyDict_GET_SIZE(indexes));
    PyObject *index = name == NULL || next == NULL ? NULL : PyDict_SetDefault(indexes, name, next);
    if (index != NULL) {
        *number = PyLong_AsLongLong(index);
    }
    Py_XDECREF(name);
    Py_XDECREF(next);
    return index == NULL ? -1 : 0;
}

Lock *
lock_of(const Cell *cell)
{
    if (cell->store != NULL && ((Store *)cell->store)->lock != NULL) {
        return (Lock *)Py_NewRef(((Store *)cell->store)->lock);
    }
    PyObject *lock = PyObject_GetAttrString(cell->table, "lock");
    if (lock != NULL && !Py_IS_TYPE(lock, types.lock)) {
        Py_CLEAR(lock);
        PyErr_SetString(PyExc_TypeError, "the lock of a limit is a Lock");
    }
    return (Lock *)lock;
}

/* Release the lock that is held, if any. -1 with an error. */
static int
let_go(Lock **held)
{
    Lock *lock = *held;
    if (lock == NULL) {
        return 0;
    }
    *held = NULL;
    lock_leave(lock);
    int failed = do_after_unlock(lock->kernel);
    Py_DECREF(lock);
    return failed;
}

/* Hold the lock of a cell, in place of the one that is held already if that is another. -1 with an error. */
static int
hold(Lock **held, Cell *cell)
{
    Lock *lock = lock_of(cell);
    if (lock == NULL || lock == *held) {
        Py_XDECREF(lock);
        return lock == NULL ? -1 : 0;
    }
    if (let_go(held) < 0 || !lock_enter(lock)) {
        Py_DECREF(lock);
        if (!PyErr_Occurred()) {
            raise_reentry();
        }
        return -1;
    }
    *held = lock;
    return 0;
}

/* Python takes the lock itself, and drops the key if there is nothing to report. */
static int
report_in_python(Cell *cell, i64 limit, i64 now_ns, bool in_touch, PyObject *drop, Report *row)
{
    PyObject *report = PyObject_CallFunction(python.report_cell, "OLLOO", cell, (long long)limit, (long long)now_ns,
                                             in_touch ? Py_True : Py_False, drop);
    if (report == NULL) {
        return -1;
    }
    int said = report == Py_None ? 0 : row_from(report, row) < 0 ? -1 : 1;
    Py_DECREF(report);
    return said;
}

/* The same in C, with the lock held; 1, 0 if there is nothing to report and the key is dropped, or -1 with an error. */
static int
report_or_drop(Cell *cell, i64 now_ns, bool in_touch, Report *row)
{
    Store *store = (Store *)cell->store;
    int said = report_cell(cell, now_ns, in_touch, row);
    Place *place = said == 0 ? place_of(cell) : NULL;
    if (said == 0) {
        agenda_forget(cell);
    }
    if (place != NULL) { /* as `Kernel._drop` */
        store_leave(store, place);
        store->kernel->keys--;
    }
    return said;
}

/* These reports will not arrive: queue their cells again. */
static void
take_back(Reports *reports)
{
    for (Py_ssize_t at = 0; at < reports->count; at++) {
        Cell *cell = reports->cells[at];
        i64 asked = reports->rows[at].asked;
        cell->asked = at_most(cell->asked + (asked >= ASKS ? (asked - ASKS) % FLOATS : asked), DEMAND_MAX);
        cell->ask = at_least(cell->ask, reports->rows[at].ask);
        if (mark_dirty((Store *)cell->store, cell) < 0) {
            PyErr_Clear(); /* there is no memory; the next charge tries again */
        }
    }
}

/* report_cells(cells, indexes, now_ns, in_touch, drop): the reports of those cells that have something to report. Other
 * cells are dropped from the kernel. `indexes` numbers the limits by name. */
PyObject *
report_cells(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *list, *indexes, *drop;
    long long now_ns;
    int in_touch;
    if (!PyArg_ParseTuple(args, "O!O!LpO:report_cells", &PyList_Type, &list, &PyDict_Type, &indexes, &now_ns, &in_touch,
                          &drop)) {
        return NULL;
    }
    Py_ssize_t most = PyList_GET_SIZE(list);
    Reports *reports = PyObject_GC_New(Reports, types.reports);
    if (reports == NULL) {
        return NULL;
    }
    reports->count = 0;
    reports->cells = PyMem_Malloc((size_t)(most + 1) * sizeof(Cell *));
    reports->rows = PyMem_Malloc((size_t)(most + 1) * sizeof(Report));
    PyObject_GC_Track((PyObject *)reports);
    if (reports->cells == NULL || reports->rows == NULL) {
        Py_DECREF(reports);
        return PyErr_NoMemory();
    }
    PyObject *table = NULL; /* of the last cell */
    Lock *held = NULL;
    i64 limit = 0;
    for (Py_ssize_t at = 0; at < most && at < PyList_GET_SIZE(list); at++) {
        Cell *cell = (Cell *)PyList_GET_ITEM(list, at);
        if (at + AHEAD < most) {
            fetch_cell((Cell *)PyList_GET_ITEM(list, at + AHEAD));
        }
        if (!Py_IS_TYPE(cell, types.cell) || cell->table == NULL) {
            PyErr_SetString(PyExc_TypeError, "only cells are reported");
            goto failed;
        }
        if (cell->table != table) {
            table = cell->table;
            if (let_go(&held) < 0 || number_of(table, indexes, &limit) < 0) {
                goto failed;
            }
        }
        Report *row = &reports->rows[reports->count];
        int said = -1;
        Py_INCREF(cell); /* the list is Python's */
        if (known_here(cell) && !cell->leaving) {
            said = hold(&held, cell) < 0 ? -1 : report_or_drop(cell, now_ns, in_touch, row);
        } else if (let_go(&held) == 0) {
            said = report_in_python(cell, limit, now_ns, in_touch, drop, row);
        }
        if (said > 0) {
            row->limit = limit;
            reports->cells[reports->count++] = cell;
        } else {
            Py_DECREF(cell);
        }
        if (said < 0) {
            goto failed;
        }
    }
    if (let_go(&held) < 0) {
        goto failed;
    }
    return (PyObject *)reports;
failed:
    let_go(&held);
    take_back(reports);
    Py_DECREF(reports);
    return NULL;
}

/* ------------------------------------------------------------------ when the hub's clock has jumped */

/* `rebase` of `kernel/reporting/batches.py` with the lock held. -1 with an error. */
static int
rebase(Store *store, Cell *cell, i64 now_ns)
{
    measure(store, cell);
    if (has_share(&store->terms, cell)) {
        cell->at_hub = true; /* it closes with the window in which it was opened */
    }
    if (floats(&store->terms, cell) || (store->terms.kind == FIXED && has_share(&store->terms, cell))) {
        cell->allowance = 0; /* it was granted, or opened, for a window that now has another number */
    }
    cell->epoch = (i64)floor_div(now_ns + cell->shard->offset_ns, store->terms.window_ns);
    if (enter_window(store, cell, now_ns) < 0) {
        return -1;
    }
    set_until(store, cell, now_ns);
    cell->room = -1;
    return cell->used != 0 || cell->previous != 0 ? mark_dirty(store, cell) : 0;
}

static int
rebase_in_python(Cell *cell, i64 now_ns)
{
    PyObject *done = PyObject_CallFunction(python.rebase, "OL", cell, (long long)now_ns);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* rebase_cells(cells, now_ns): move the counts of those cells to the corrected time of the hub. */
PyObject *
rebase_cells(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *list;
    long long now_ns;
    if (!PyArg_ParseTuple(args, "O!L:rebase_cells", &PyList_Type, &list, &now_ns)) {
        return NULL;
    }
    Lock *held = NULL;
    int failed = 0;
    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(list); at++) {
        Cell *cell = (Cell *)PyList_GET_ITEM(list, at);
        if (!Py_IS_TYPE(cell, types.cell)) {
            PyErr_SetString(PyExc_TypeError, "only cells are rebased");
            failed = -1;
            break;
        }
        Py_INCREF(cell); /* the list is Python's */
        if (known_here(cell) && !needs_time(cell->shard, now_ns)) {
            failed = hold(&held, cell) < 0 || rebase((Store *)cell->store, cell, now_ns) < 0;
        } else {
            failed = let_go(&held) < 0 || rebase_in_python(cell, now_ns) < 0;
        }
        Py_DECREF(cell);
    }
    failed = let_go(&held) < 0 || failed;
    return failed ? NULL : Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------ applying the answers */

int
open_answers(PyObject *given, Answers *answers)
{
    *answers = (Answers){0};
    if (PyTuple_Check(given)) {
        answers->tuple = given;
        answers->count = PyTuple_GET_SIZE(given);
        return 0;
    }
    PyObject *raw = PyObject_GetAttrString(given, "raw"), *wide = raw == NULL ? NULL : PyObject_GetAttrString(given, "wide");
    int failed = wide == NULL || PyObject_GetBuffer(raw, &answers->rows, PyBUF_SIMPLE) < 0 ? -1 : 0;
    if (!failed) {
        answers->wide = PyObject_IsTrue(wide) == 1;
        answers->count = answers->rows.len / (answers->wide ? 128 : 72);
    }
    Py_XDECREF(raw);
    Py_XDECREF(wide);
    return failed;
}

void
close_answers(Answers *answers)
{
    if (answers->tuple == NULL) {
        PyBuffer_Release(&answers->rows);
    }
}

int
answer_at(const Answers *answers, Py_ssize_t at, Answer *answer)
{
    i64 *numbers = (i64 *)answer;
    if (answers->tuple != NULL) {
        return numbers_from(PyTuple_GET_ITEM(answers->tuple, at), 0, numbers, ANSWER_FIELDS);
    }
    const char *from = (const char *)answers->rows.buf + at * (answers->wide ? 128 : 72);
    if (answers->wide) {
        memcpy(answer, from, sizeof(*answer));
        return 0;
    }
    memcpy(&numbers[0], from, 8);
    for (Py_ssize_t field = 1; field < ANSWER_FIELDS - 1; field++) {
        int32_t amount;
        memcpy(&amount, from + 4 + 4 * field, 4);
        numbers[field] = amount;
    }
    memcpy(&numbers[ANSWER_FIELDS - 1], from + 64, 8);
    return 0;
}

/* Whether waiting requests have to be woken; or -1 with an error. Python takes the lock itself. */
static int
hear_in_python(const Reports *reports, Py_ssize_t at, PyObject *answers, i64 heard_ns, i64 now_ns)
{
    PyObject *report = as_tuple(reports, at), *answer = report == NULL ? NULL : PySequence_GetItem(answers, at);
    PyObject *done = answer == NULL ? NULL
                                    : PyObject_CallFunction(python.apply_answer, "OOOLL", reports->cells[at], report, answer,
                                                            (long long)heard_ns, (long long)now_ns);
    int wakes = done == NULL ? -1 : PyObject_IsTrue(done);
    Py_XDECREF(report);
    Py_XDECREF(answer);
    Py_XDECREF(done);
    return wakes;
}

/* The same in C, with the lock held. */
static int
hear_here(const Reports *reports, Py_ssize_t at, const Answers *answers, i64 heard_ns, i64 now_ns)
{
    Cell *cell = reports->cells[at];
    Answer answer;
    i64 allowance = cell->allowance, overdraft = cell->overdraft, heard = cell->heard_ns, reset_us = cell->reset_us;
    if (answer_at(answers, at, &answer) < 0 || apply_answer(cell, &reports->rows[at], &answer, heard_ns, now_ns) < 0) {
        return -1;
    }
    return cell->waiters > 0 && (cell->at_hub || allowance != cell->allowance || overdraft != cell->overdraft || reset_us != cell->reset_us ||
                                 (heard > -NEVER_NS) != is_heard(cell));
}

/* apply_answers(reports, answers, heard_ns, now_ns): apply the answer to each report; returns the cells whose waiting
 * requests have to be woken. */
PyObject *
apply_answers(PyObject *Py_UNUSED(module), PyObject *args)
{
    Reports *reports;
    PyObject *given;
    long long heard_ns, now_ns;
    Answers answers;
    if (!PyArg_ParseTuple(args, "O!OLL:apply_answers", types.reports, &reports, &given, &heard_ns, &now_ns) ||
        open_answers(given, &answers) < 0) {
        return NULL;
    }
    if (answers.count != reports->count) {
        close_answers(&answers);
        PyErr_SetString(PyExc_ValueError, "there is one answer for each report");
        return NULL;
    }
    PyObject *news = PyList_New(0);
    Lock *held = NULL;
    for (Py_ssize_t at = 0; news != NULL && at < reports->count; at++) {
        Cell *cell = reports->cells[at];
        if (at + AHEAD < reports->count) {
            fetch_cell(reports->cells[at + AHEAD]);
        }
        int wakes = -1;
        if (known_here(cell)) {
            wakes = hold(&held, cell) < 0 ? -1 : hear_here(reports, at, &answers, heard_ns, now_ns);
        } else if (let_go(&held) == 0) {
            wakes = hear_in_python(reports, at, given, heard_ns, now_ns);
        }
        if (wakes < 0 || (wakes && PyList_Append(news, (PyObject *)cell) < 0)) {
            Py_CLEAR(news);
            break;
        }
        if (cell->unconfirmed) {
            cell->unconfirmed = false;
            cell->shard->unconfirmed--;
        }
    }
    if (let_go(&held) < 0) {
        Py_CLEAR(news);
    }
    close_answers(&answers);
    return news;
}
