/* The compiled kernel: `reconverge.kernel._native`. */
#include "decision.h"
#include "native.h"

Types types;

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
    if (!add(module, &Lock_spec, &types.lock) || !add(module, &Shard_spec, &types.shard) ||
        !add(module, &Tally_spec, &types.tally) || !add(module, &Cell_spec, &types.cell) ||
        !add(module, &Store_spec, &types.store) ||
        !add(module, &Decision_spec, &types.decision)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
