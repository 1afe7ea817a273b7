/* The schedule of checks of quiet cells: `kernel/reporting/agenda.py`. A scheduled check is called a promise; a cell
 * has at most one, and a new one replaces it.
 *
 * Promises are kept in groups; groups for one moment come in the order in which they were begun. A group does not own
 * its cells: it lists their places, and each cell stores its group and its index in the group, so that it can leave.
 */
#include "places.h"

#define MIXED_MAX 16
#define GROUP_FIRST 4

/* ------------------------------------------------------------------ the heap of groups */

static inline bool
sooner(const Group *one, const Group *other)
{
    return one->due_ns != other->due_ns ? one->due_ns < other->due_ns : one->number < other->number;
}

static inline void
set_group(Agenda *agenda, i64 at, Group *group)
{
    agenda->groups[at] = group;
    group->at = at;
}

/* Move a group to where it belongs, from a place that may be too far from the top, or too near. */
static void
settle(Agenda *agenda, i64 at, Group *group)
{
    while (at > 0 && sooner(group, agenda->groups[(at - 1) / 2])) {
        set_group(agenda, at, agenda->groups[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        i64 next = 2 * at + 1;
        if (next >= agenda->count) {
            break;
        }
        if (next + 1 < agenda->count && sooner(agenda->groups[next + 1], agenda->groups[next])) {
            next++;
        }
        if (!sooner(agenda->groups[next], group)) {
            break;
        }
        set_group(agenda, at, agenda->groups[next]);
        at = next;
    }
    set_group(agenda, at, group);
}

static void
take_out(Agenda *agenda, Group *group)
{
    Group *last = agenda->groups[--agenda->count];
    if (last != group) {
        settle(agenda, group->at, last);
    }
    for (int at = 0; at < agenda->open_count; at++) {
        if (agenda->open[at] == group) {
            agenda->open_count--;
            memmove(&agenda->open[at], &agenda->open[at + 1], (size_t)(agenda->open_count - at) * sizeof(Group *));
            break;
        }
    }
}

/* ------------------------------------------------------------------ groups */

static Group *
group_new(Agenda *agenda, Store *store, const Cell *cell, i64 due_ns)
{
    if (agenda->count == agenda->size) {
        i64 size = agenda->size ? agenda->size + agenda->size / 2 : 16;
        Group **groups = PyMem_Realloc(agenda->groups, (size_t)size * sizeof(*groups));
        if (groups == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        agenda->groups = groups;
        agenda->size = size;
    }
    Group *group = PyMem_Calloc(1, sizeof(*group));
    if (group == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    group->due_ns = due_ns;
    group->number = ++agenda->numbers;
    group->agenda = agenda;
    group->store = store;
    group->shard = (int)cell->shard->index;
    settle(agenda, agenda->count++, group);
    if (agenda->open_count == OPEN_MAX) {
        agenda->open_count--;
        memmove(agenda->open, agenda->open + 1, (OPEN_MAX - 1) * sizeof(Group *));
    }
    agenda->open[agenda->open_count++] = group;
    return group;
}

/* A promise may join one of the last groups; one with many members only if it was reported with the last of them. */
static Group *
group_for(Agenda *agenda, Store *store, const Cell *cell, i64 due_ns)
{
    for (int at = agenda->open_count; store != NULL && at-- > 0;) {
        Group *group = agenda->open[at];
        if (group->due_ns == due_ns && group->store == store) {
            int most = group->reported_ns == cell->reported_ns ? GROUP_MAX : MIXED_MAX;
            if (group->joined < most) {
                return group;
            }
            break; /* in an older group the cell would come before cells of this one */
        }
    }
    return group_new(agenda, store, cell, due_ns);
}

void
group_leave(Group *group, int slot)
{
    if (group->store != NULL) {
        group->places[slot] = 0;
    }
    if (--group->live > 0) {
        return;
    }
    if (group->agenda != NULL) {
        take_out(group->agenda, group);
    }
    PyMem_Free(group->places);
    PyMem_Free(group->pattern);
    PyMem_Free(group);
}

/* Make room for one more promise. False, with an exception set, if there is no memory. A group without a store lists no
 * places, so it needs none. */
static bool
widen(Group *group)
{
    if (group->store == NULL || group->joined < group->size) {
        return true;
    }
    int size = group->size == 0 ? GROUP_FIRST : 2 * group->size;
    uint32_t *places = PyMem_Realloc(group->places, (size_t)size * sizeof(*places));
    if (places == NULL) {
        PyErr_NoMemory();
        return false;
    }
    group->places = places;
    group->size = size;
    return true;
}

/* ------------------------------------------------------------------ promises */

void
agenda_forget(Cell *cell)
{
    Group *group = cell->group;
    if (group != NULL) {
        cell->group = NULL;
        group_leave(group, cell->slot);
    }
}

int
agenda_promise(Agenda *agenda, Cell *cell, i64 due_ns)
{
    agenda_forget(cell);
    Store *store = place_of(cell) != NULL ? (Store *)cell->store : NULL;
    Group *group = group_for(agenda, store, cell, due_ns);
    if (group == NULL) {
        return -1;
    }
    group->live++;
    if (!widen(group)) {
        group_leave(group, group->joined);
        return -1;
    }
    if (store != NULL) {
        group->places[group->joined] = (uint32_t)(cell->place + 1);
    } else {
        group->cell = cell;
    }
    group->reported_ns = cell->reported_ns;
    cell->group = group;
    cell->slot = group->joined++;
    return 0;
}

i64
agenda_due_ns(const Agenda *agenda)
{
    return agenda->count > 0 ? agenda->groups[0]->due_ns : NEVER_NS;
}

/* ------------------------------------------------------------------ as Python sees them */

static int
Agenda_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static void
Agenda_dealloc(PyObject *object)
{
    Agenda *self = (Agenda *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    for (i64 at = 0; at < self->count; at++) {
        self->groups[at]->agenda = NULL; /* its cells still refer to it; it is freed when the last one leaves */
    }
    PyMem_Free(self->groups);
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
Agenda_forget(PyObject *Py_UNUSED(object), PyObject *cell)
{
    if (!Py_IS_TYPE(cell, types.cell)) {
        PyErr_SetString(PyExc_TypeError, "only about cells anything is promised");
        return NULL;
    }
    agenda_forget((Cell *)cell);
    Py_RETURN_NONE;
}

static PyObject *
Agenda_due_ns(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLongLong(agenda_due_ns((Agenda *)object));
}

static PyMethodDef Agenda_methods[] = {
    {"promise", Agenda_promise, METH_VARARGS, NULL},
    {"forget", Agenda_forget, METH_O, NULL},
    {"due_ns", Agenda_due_ns, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot Agenda_slots[] = {
    {Py_tp_traverse, Agenda_traverse},
    {Py_tp_dealloc, Agenda_dealloc},
    {Py_tp_methods, Agenda_methods},
    {0, NULL},
};

PyType_Spec Agenda_spec = {
    .name = "reconverge.kernel._native.Agenda",
    .basicsize = sizeof(Agenda),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Agenda_slots,
};
