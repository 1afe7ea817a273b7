/* The compiled kernel: `reconverge.kernel._native`. */
#include "answers.h"
#include "decision.h"
#include "native.h"
#include "python.h"

Types types;
Python python;

/* use(cell_report, report_cell, hear_cell, look_again, leaves): what Python is to be asked for. */
static PyObject *
use(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *cell_report, *report, *hear, *look, *leaves;
    if (!PyArg_ParseTuple(args, "OOOOO:use", &cell_report, &report, &hear, &look, &leaves)) {
        return NULL;
    }
    Py_XSETREF(python.cell_report, Py_NewRef(cell_report));
    Py_XSETREF(python.report_cell, Py_NewRef(report));
    Py_XSETREF(python.hear_cell, Py_NewRef(hear));
    Py_XSETREF(python.look_again, Py_NewRef(look));
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
    {"due_cells", (PyCFunction)(void (*)(void))due_cells, METH_FASTCALL, NULL},
    {"report_cells", report_cells, METH_VARARGS, NULL},
    {"hear_cells", hear_cells, METH_VARARGS, NULL},
    {"first_odd_cell", first_odd_cell, METH_VARARGS, NULL},
    {NULL},
};

static bool
add(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type != NULL && PyModule_AddType(module, *type) == 0;
}

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "reconverge.kernel._native",
    .m_doc = PyDoc_STR("The kernel's cells and decisions, compiled. The kernel in Python is its definition."),
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
#ifdef Py_GIL_DISABLED
    /* What happens at once here does so because the interpreter has a lock; without one it has to take it. */
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_USED);
#endif
    PyObject *flags = PySys_GetObject("flags"); /* borrowed */
    PyObject *random = flags == NULL ? NULL : PyObject_GetAttrString(flags, "hash_randomization");
    const char *seed = getenv("PYTHONHASHSEED");
    types.secret_hashes =
        random != NULL && PyObject_IsTrue(random) == 1 && (seed == NULL || *seed == 0 || strcmp(seed, "random") == 0);
    Py_XDECREF(random);
    PyErr_Clear();
    types.reentry = PyErr_NewExceptionWithDoc(
        "reconverge.kernel._native.Reentry",
        "A thread that is in the middle of a decision has asked for what would make it wait for itself.",
        PyExc_RuntimeError, NULL);
    if (types.reentry == NULL || PyModule_AddObjectRef(module, "Reentry", types.reentry) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    if (!add(module, &Lock_spec, &types.lock) || !add(module, &Queue_spec, &types.queue) ||
        !add(module, &Agenda_spec, &types.agenda) || !add(module, &Reports_spec, &types.reports) ||
        !add(module, &Shard_spec, &types.shard) || !add(module, &Tally_spec, &types.tally) ||
        !add(module, &Kernel_spec, &types.kernel) || !add(module, &Cell_spec, &types.cell) ||
        !add(module, &Store_spec, &types.store) || !add(module, &Decision_spec, &types.decision)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
