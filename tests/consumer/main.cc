// Uses the installed library the way an outside program does; run.cmake builds it twice.

#include <cstdio>

#include "varve/plan.h"
#include "varve/status.h"

int main() {
  const varve::Result<varve::Plan> plan = varve::ParsePlan("q8_0");
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", plan.status().ToString().c_str());
    return 1;
  }
  std::printf("plan %s\n", varve::PrintPlan(*plan).c_str());
  return 0;
}
