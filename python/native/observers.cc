#include "observers.h"

#include <cstring>
#include <utility>

#include <pybind11/stl.h>

#include "tensor.h"

namespace py = pybind11;

namespace varve::python {
namespace {

// What the functions are given: copies, so that they may be kept.
struct AttentionEvent {
  int layer;
  uint64_t sequence;
  int64_t first_position;
  std::vector<PageSpan> pages;
  py::object mass;
};

const char* FateName(PageFate fate) {
  if (fate == PageFate::kKept) return "kept";
  return fate == PageFate::kDemoted ? "demoted" : "dropped";
}

py::object MassArray(const AttentionMass& mass) {
  const auto pages = static_cast<int64_t>(mass.pages.size());
  py::object array = EmptyFloats({mass.num_queries, mass.num_heads, pages});
  const Tensor tensor = Tensor::Write(array, "mass", {});
  const auto values = static_cast<size_t>(mass.num_queries) * static_cast<size_t>(mass.num_heads) *
                      mass.pages.size();
  if (values > 0) std::memcpy(tensor.data(), mass.mass, values * sizeof(float));
  return array;
}

}  // namespace

Observers::Observers(py::object on_attention, py::object on_retention, py::object on_log)
    : on_attention_(std::move(on_attention)),
      on_retention_(std::move(on_retention)),
      on_log_(std::move(on_log)) {}

void Observers::Attach(CacheOptions& options) {
  if (!on_attention_.is_none()) options.observer = this;
  if (!on_retention_.is_none()) options.retention_observer = this;
  if (!on_log_.is_none()) options.log = this;
}

void Observers::Rethrow() {
  if (!raised_) return;
  py::error_already_set raised = std::move(*raised_);
  raised_.reset();
  throw raised;
}

int Observers::Visit(visitproc visit, void* arg) const {
  Py_VISIT(on_attention_.ptr());
  Py_VISIT(on_retention_.ptr());
  Py_VISIT(on_log_.ptr());
  return 0;
}

void Observers::Clear() {
  for (py::object* function : {&on_attention_, &on_retention_, &on_log_}) {
    const py::object released = std::exchange(*function, py::none());
  }
}

template <typename Arguments>
void Observers::Call(const py::object& function, const Arguments& arguments) {
  const py::gil_scoped_acquire gil;
  if (raised_ || function.is_none()) return;
  try {
    function(arguments());
  } catch (py::error_already_set& error) {
    raised_.emplace(std::move(error));
  }
}

void Observers::OnAttention(const AttentionMass& mass) {
  Call(on_attention_, [&] {
    return AttentionEvent{.layer = mass.layer,
                          .sequence = mass.sequence.value,
                          .first_position = mass.first_position,
                          .pages = {mass.pages.begin(), mass.pages.end()},
                          .mass = MassArray(mass)};
  });
}

void Observers::OnRetention(const RetentionEvent& event) {
  Call(on_retention_, [&] { return event; });
}

void Observers::OnLine(std::string_view line) {
  Call(on_log_, [&] { return std::string(line); });
}

void RegisterObservers(py::module_& module) {
  py::class_<PageSpan>(module, "PageSpan", "A page of a sequence's table in one layer.")
      .def_readonly("first_position", &PageSpan::first_position)
      .def_readonly("num_positions", &PageSpan::num_positions)
      .def_readonly("num_rows", &PageSpan::num_rows, "Rows stored.")
      .def_readonly("num_live_rows", &PageSpan::num_live_rows, "Rows that attention still sees.")
      .def("__repr__", [](const PageSpan& span) {
        return "PageSpan(first_position=" + std::to_string(span.first_position) +
               ", num_positions=" + std::to_string(span.num_positions) + ")";
      });
  py::class_<AttentionEvent>(module, "AttentionEvent",
                             "The exact attention mass of every page, for `on_attention`.")
      .def_readonly("layer", &AttentionEvent::layer)
      .def_readonly("sequence", &AttentionEvent::sequence)
      .def_readonly("first_position", &AttentionEvent::first_position, "Of query 0.")
      .def_readonly("pages", &AttentionEvent::pages)
      .def_readonly("mass", &AttentionEvent::mass,
                    "[queries, query heads, pages]; each row over pages sums to 1.");
  py::class_<PageDecision>(module, "PageDecision", "What a policy has done to one page.")
      .def_readonly("page", &PageDecision::page)
      .def_readonly("score", &PageDecision::score, "What the policy ranks by.")
      .def_property_readonly(
          "fate", [](const PageDecision& decision) { return FateName(decision.fate); },
          "'kept', 'demoted' or 'dropped'.")
      .def_readonly("rung", &PageDecision::rung, "That the page has now; empty if dropped.");
  py::class_<RetentionEvent>(module, "RetentionEvent",
                             "A decision that was carried out, for `on_retention`.")
      .def_property_readonly("sequence",
                             [](const RetentionEvent& event) { return event.sequence.value; })
      .def_readonly("layer", &RetentionEvent::layer)
      .def_readonly("next_position", &RetentionEvent::next_position)
      .def_readonly("pages", &RetentionEvent::pages, "The table as it was before, ascending.")
      .def_readonly("target_bytes", &RetentionEvent::target_bytes)
      .def_readonly("held_bytes", &RetentionEvent::held_bytes)
      .def_readonly("floors_bind", &RetentionEvent::floors_bind,
                    "What must stay exceeds the target.");
}

}  // namespace varve::python
