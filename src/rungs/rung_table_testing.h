// ScopedRung: a rung of a test's own in the table, as long as it lives. Not part of the library.

#ifndef VARVE_RUNGS_RUNG_TABLE_TESTING_H_
#define VARVE_RUNGS_RUNG_TABLE_TESTING_H_

#include "rungs/rung_table_rows.h"

namespace varve {

class ScopedRung {
 public:
  // The descriptor must outlive every cache that uses it.
  explicit ScopedRung(const RungDescriptor& descriptor) { RungRows().push_back(&descriptor); }
  ~ScopedRung() { RungRows().pop_back(); }
  ScopedRung(const ScopedRung&) = delete;
  ScopedRung& operator=(const ScopedRung&) = delete;
};

}  // namespace varve

#endif  // VARVE_RUNGS_RUNG_TABLE_TESTING_H_
