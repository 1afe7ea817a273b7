/* The Python functions that the compiled kernel calls for cells that it does not support. */
#ifndef RECONVERGE_PYTHON_H
#define RECONVERGE_PYTHON_H

#include "native.h"

typedef struct {
    PyObject *cell_report; /* the class of reports */
    PyObject *cells; /* the name of an attribute of limits */
    PyObject *report_cell, *apply_answer, *look_again, *rebase, *leaves, *allow_many;
} Python;

extern Python python;

#endif
