/* The fields of a Decision. */
#ifndef RECONVERGE_DECISION_H
#define RECONVERGE_DECISION_H

#include "native.h"

typedef struct {
    PyObject_HEAD
    PyObject *binding;
    i64 limit, remaining;
    double retry_after, reset_after, staleness;
    char allowed, over_quota, borrowed, certain;
} Decision;

extern PyType_Spec Decision_spec;
PyObject *new_decision(void);
PyObject *binding_admission(PyObject *const *decisions, Py_ssize_t size); /* of quotas that all admit */

#endif
