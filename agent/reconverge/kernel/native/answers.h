/* The types of the reports in a batch, and of the hub's answers to them. */
#ifndef RECONVERGE_ANSWERS_H
#define RECONVERGE_ANSWERS_H

#include "native.h"

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    Cell **cells; /* owned */
    Report *rows;
} Reports;

/* The answers of a batch: a tuple of them, or the rows of a message. */
typedef struct {
    PyObject *tuple; /* borrowed; NULL if they are rows */
    Py_buffer rows;
    Py_ssize_t count;
    bool wide;
} Answers;

int open_answers(PyObject *given, Answers *answers); /* -1 with an error */
void close_answers(Answers *answers);
int answer_at(const Answers *answers, Py_ssize_t at, Answer *answer); /* likewise */

/* plausible.c */ PyObject *first_odd_cell(PyObject *module, PyObject *args);

#endif
