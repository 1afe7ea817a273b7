/* The compiled kernel: `reconverge.kernel._native`. */
#include "answers.h"
#include "decision.h"
#include "native.h"
#include "python.h"

Types types;
Python python;

/* use(cell_report, report_cell, apply_answer, look_again, rebase, leaves): the Python objects that C calls. */
static PyObject *
use(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *cell_report, *report, *hear, *look, *rebase, *leaves;
    if (!PyArg_ParseTuple(args, "OOOOOO:use", &cell_report, &report, &hear, &look, &rebase, &leaves)) {
        return NULL;
    }
    Py_XSETREF(python.cell_report, Py_NewRef(cell_report));
    Py_XSETREF(python.report_cell, Py_NewRef(report));
    Py_XSETREF(python.apply_answer, Py_NewRef(hear));
    Py_XSETREF(python.look_again, Py_NewRef(look));
    Py_XSETREF(python.rebase, Py_NewRef(rebase));
    Py_XSETREF(python.leaves, Py_NewRef(leaves));
    Py_RETURN_NONE;
}

/* use_many(allow_many): likewise. */
static PyObject *
use_many(PyObject *Py_UNUSED(module), PyObject *function)
{
    Py_XSETREF(python.allow_many, Py_NewRef(function));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"use_many", use_many, METH_O, NULL},
    {"use", use, METH_VARARGS, NULL},
    {"hit_all", (PyCFunction)(void (*)(void))hit_all, METH_FASTCALL, NULL},
    {"due_cells", (PyCFunction)(void (*)(void))due_cells, METH_FASTCALL, NULL},
    {"put_forward", (PyCFunction)(void (*)(void))put_forward, METH_FASTCALL, NULL},
    {"report_cells", report_cells, METH_VARARGS, NULL},
    {"rebase_cells", rebase_cells, METH_VARARGS, NULL},
    {"apply_answers", apply_answers, METH_VARARGS, NULL},
    {"first_odd_cell", first_odd_cell, METH_VARARGS, NULL},
    {NULL},
};

static bool
add(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    if (*type == NULL) {
        *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    }
    return *type != NULL && PyModule_AddType(module, *type) == 0;
}

/* The kernel refers to types and functions of one interpreter. A second interpreter in the process would replace them,
 * and leave invalid references behind when it ends. So all but the main interpreter decide with the kernel in Python.
 */
static int
begin(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "the compiled kernel serves the main interpreter only");
        return -1;
    }
    PyObject *flags = PySys_GetObject("flags"); /* borrowed */
    PyObject *random = flags == NULL ? NULL : PyObject_GetAttrString(flags, "hash_randomization");
    const char *seed = getenv("PYTHONHASHSEED");
    types.secret_hashes =
        random != NULL && PyObject_IsTrue(random) == 1 && (seed == NULL || *seed == 0 || strcmp(seed, "random") == 0);
    Py_XDECREF(random);
    PyErr_Clear();
    if (types.reentry == NULL) {
        types.reentry = PyErr_NewExceptionWithDoc(
            "reconverge.kernel._native.Reentry",
            "A thread that is in the middle of a decision has asked for what would make it wait for itself.",
            PyExc_RuntimeError, NULL);
    }
    if (python.cells == NULL && (python.cells = PyUnicode_InternFromString("cells")) == NULL) {
        return -1;
    }
    if (types.reentry == NULL || PyModule_AddObjectRef(module, "Reentry", types.reentry) < 0) {
        return -1;
    }
    bool added = add(module, &Lock_spec, &types.lock) && add(module, &Queue_spec, &types.queue) &&
                 add(module, &Lanes_spec, &types.lanes) &&
                 add(module, &Agenda_spec, &types.agenda) && add(module, &Reports_spec, &types.reports) &&
                 add(module, &Shard_spec, &types.shard) && add(module, &Tally_spec, &types.tally) &&
                 add(module, &Kernel_spec, &types.kernel) && add(module, &Cell_spec, &types.cell) &&
                 add(module, &Evicted_spec, &types.evicted) && add(module, &Store_spec, &types.store) &&
                 add(module, &Decision_spec, &types.decision);
    return added ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, begin},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    /* Single steps of this module rely on the interpreter's lock; a free-threaded interpreter turns it on. */
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "reconverge.kernel._native",
    .m_doc = PyDoc_STR("The kernel's cells and decisions, compiled. The kernel in Python is its definition."),
    .m_size = 0,
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
