// The rows of the table of rungs, as a list that can be changed. Only the table itself and tests
// include this: a test lays a rung of its own on top (rung_table_testing.h). Not while anything
// else reads the table.

#ifndef VARVE_RUNGS_RUNG_TABLE_ROWS_H_
#define VARVE_RUNGS_RUNG_TABLE_ROWS_H_

#include <vector>

#include "rungs/rung_table.h"

namespace varve {

std::vector<const RungDescriptor*>& RungRows();

}  // namespace varve

#endif  // VARVE_RUNGS_RUNG_TABLE_ROWS_H_
