/* Checks whether the answers of a hub are plausible: `first_odd_cell` in `hub/checking/answers.py`, for rows of a
 * message and for tuples. */
#include "answers.h"

#define WHOLE_MAX (1LL << 53)
#define NARROW_BYTES 72

/* The largest numbers that an answer about cells of one limit may have. */
typedef struct {
    i64 capacity, base, overdraft;
} Bounds;

/* The number of nodes in an answer; 0 if the hub has no room for the key, and has granted nothing. */
static inline i64
nodes_reported(i64 nodes, i64 allowances)
{
    return nodes == NOT_TAKEN && allowances == 0 ? 0 : nodes;
}

static bool
is_plausible(const Answer *answer, const Bounds *bounds)
{
    /* None is negative if the sign of none is set, and none is too large if no bit above the largest is. */
    i64 nodes = nodes_reported(answer->nodes, answer->allowance | answer->base | answer->overdraft | answer->free);
    i64 sent = answer->free | answer->reserved | answer->silent | answer->needs_milli | answer->demand_milli | nodes |
                  answer->last_demand | answer->window_demand | answer->reset_us;
    i64 allowances = answer->allowance | answer->base | answer->overdraft | answer->capacity;
    if ((sent | allowances) < 0) {
        return false;
    }
    if (sent >= WHOLE_MAX) { /* two numbers in range have no larger bits than each of them, but for the largest */
        if (answer->reserved > WHOLE_MAX || answer->silent > WHOLE_MAX || answer->needs_milli > WHOLE_MAX ||
            answer->demand_milli > WHOLE_MAX || answer->nodes > WHOLE_MAX || answer->last_demand > WHOLE_MAX ||
            answer->window_demand > WHOLE_MAX || answer->reset_us > WHOLE_MAX) {
            return false;
        }
    }
    if (answer->epoch > WHOLE_MAX || answer->epoch < -WHOLE_MAX || answer->current > WHOLE_MAX ||
        answer->current < -WHOLE_MAX || answer->previous > WHOLE_MAX || answer->previous < -WHOLE_MAX) {
        return false;
    }
    return answer->allowance <= answer->capacity && answer->base <= answer->capacity && answer->free <= answer->capacity &&
           answer->capacity <= bounds->capacity && answer->base <= bounds->base &&
           answer->overdraft <= bounds->overdraft;
}

/* A narrow row as it travels: the epoch, fourteen sent, and the moment of the reset. None of the sent is too large. */
typedef struct {
    int32_t allowance, base, overdraft, capacity, free, reserved, current, previous, silent, needs_milli, demand_milli, nodes,
        last_demand, window_demand;
} Amounts;

static bool
is_narrow_plausible(const char *row, const Bounds *bounds)
{
    i64 epoch, reset_us;
    Amounts sent;
    memcpy(&epoch, row, 8);
    memcpy(&sent, row + 8, sizeof(sent));
    memcpy(&reset_us, row + 8 + sizeof(sent), 8);
    int32_t nodes = (int32_t)nodes_reported(sent.nodes, sent.allowance | sent.base | sent.overdraft | sent.free);
    int32_t signs = sent.allowance | sent.base | sent.overdraft | sent.free | sent.reserved | sent.silent | sent.needs_milli |
                    sent.demand_milli | nodes | sent.last_demand | sent.window_demand;
    return signs >= 0 && epoch <= WHOLE_MAX && epoch >= -WHOLE_MAX && reset_us >= 0 && reset_us <= WHOLE_MAX &&
           sent.allowance <= sent.capacity && sent.base <= sent.capacity && sent.free <= sent.capacity &&
           sent.capacity <= bounds->capacity && sent.base <= bounds->base && sent.overdraft <= bounds->overdraft;
}

/* The numbers of a CellAnswer; 0 if it has other fields than whole numbers, or larger ones. */
static bool
read_tuple(PyObject *tuple, Answer *answer)
{
    i64 *numbers = (i64 *)answer;
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != ANSWER_FIELDS) {
        return false;
    }
    for (Py_ssize_t at = 0; at < ANSWER_FIELDS; at++) {
        PyObject *number = PyTuple_GET_ITEM(tuple, at);
        int overflow = 0;
        if (!PyLong_CheckExact(number)) {
            return false;
        }
        numbers[at] = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow != 0) {
            return false;
        }
    }
    return true;
}

static int
read_bounds(PyObject *tuple, Bounds *bounds, Py_ssize_t count)
{
    for (Py_ssize_t at = 0; at < count; at++) {
        long long capacity, base, overdraft;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, at), "LLL:bounds", &capacity, &base, &overdraft)) {
            return -1;
        }
        bounds[at] = (Bounds){capacity, base, overdraft};
    }
    return 0;
}

static Py_ssize_t
count_of(PyObject *reports)
{
    return Py_IS_TYPE(reports, types.reports) ? ((Reports *)reports)->count : PySequence_Size(reports);
}

/* The index of a report's limit; -1 with an error. */
static i64
limit_of(PyObject *reports, Py_ssize_t at)
{
    if (Py_IS_TYPE(reports, types.reports)) {
        return ((Reports *)reports)->rows[at].limit;
    }
    PyObject *report = PyTuple_Check(reports) ? PyTuple_GET_ITEM(reports, at) : NULL;
    PyObject *limit = report != NULL && PyTuple_Check(report) && PyTuple_GET_SIZE(report) > 0
                          ? PyTuple_GET_ITEM(report, 0)
                          : NULL;
    i64 number = limit == NULL ? -1 : PyLong_AsLongLong(limit);
    PyErr_Clear();
    return number;
}

/* The place of the first answer that is not plausible, -1 if all are, or -2 with an error. */
static Py_ssize_t
look_for_odd(PyObject *reports, const Answers *answers, const Bounds *bounds, Py_ssize_t limits)
{
    bool narrow = answers->tuple == NULL && !answers->wide;
    for (Py_ssize_t at = 0; at < answers->count; at++) {
        Answer answer;
        i64 limit = limit_of(reports, at);
        if (limit < 0 || limit >= limits) {
            PyErr_SetString(PyExc_ValueError, "a report is about a limit of its batch");
            return -2;
        }
        if (narrow) {
            if (!is_narrow_plausible((const char *)answers->rows.buf + at * NARROW_BYTES, &bounds[limit])) {
                return at;
            }
            continue;
        }
        if (answers->tuple != NULL ? !read_tuple(PyTuple_GET_ITEM(answers->tuple, at), &answer)
                                   : answer_at(answers, at, &answer) < 0) {
            return at;
        }
        if (!is_plausible(&answer, &bounds[limit])) {
            return at;
        }
    }
    return -1;
}

/* first_odd_cell(reports, answers, bounds): see `hub/checking/answers.py`. */
PyObject *
first_odd_cell(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *reports, *given, *tuple;
    Answers answers;
    if (!PyArg_ParseTuple(args, "OOO!:first_odd_cell", &reports, &given, &PyTuple_Type, &tuple) ||
        open_answers(given, &answers) < 0) {
        return NULL;
    }
    Py_ssize_t limits = PyTuple_GET_SIZE(tuple), odd = -2;
    Bounds *bounds = PyMem_Malloc((size_t)(limits + 1) * sizeof(Bounds));
    if (bounds == NULL) {
        PyErr_NoMemory();
    } else if (answers.count != count_of(reports)) {
        PyErr_SetString(PyExc_ValueError, "there is one answer for each report");
    } else if (read_bounds(tuple, bounds, limits) == 0) {
        odd = look_for_odd(reports, &answers, bounds, limits);
    }
    PyMem_Free(bounds);
    close_answers(&answers);
    return odd < -1 ? NULL : PyLong_FromSsize_t(odd);
}
