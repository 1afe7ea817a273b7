/* The policies: they decide how far past its allowance a node may go. */
#ifndef RECONVERGE_REACH_H
#define RECONVERGE_REACH_H

#include "cells.h"

i64 cold_reach(const Store *store, Cell *cell, i64 cost, i64 now_ns); /* what may be admitted before the first answer */
i64 away_reach(const Terms *terms, const Cell *cell, i64 cost, i64 now_ns);
i64 policy_reach(const Terms *terms, const Cell *cell, i64 allowance, i64 cost, i64 now_ns);

#endif
