/* Functions that compute the grounds of a decision. */
#ifndef RECONVERGE_EXPLAIN_H
#define RECONVERGE_EXPLAIN_H

#include "cells.h"

PyObject *explain(const Store *store, const Cell *cell, i64 cost, bool allowed, i64 now_ns);
PyObject *explain_uncharged(const Store *store, const Cell *cell, i64 cost, bool allowed, i64 now_ns);
/* Whether no answer of the hub would change the decision; a charged cost counts as 0. */
bool is_certain(const Terms *terms, const Cell *cell, i64 cost, bool allowed, i64 now_ns);
bool explains_at_once(const Store *store, const Place *place); /* whether a bucket can be explained here */
PyObject *explain_at_once(const Store *store, const Place *place, i64 now_ns); /* what was charged on the fast path */

#endif
