// Template: a Jinja template, parsed once and run as often as one likes.
//
// The part of Jinja2 that chat templates of models are written in: output, if, for (with else, if,
// loop.*, break and continue), set (blocks and namespaces too), macro, with, filter, raw, comments,
// white space control; expressions with slices, tests, filters and methods of Python's texts, lists
// and dicts. What is not supported is an error with its line, never another text. Immutable: any
// number of threads may run one.

#ifndef VARVE_RUNTIME_JINJA_JINJA_TEMPLATE_H_
#define VARVE_RUNTIME_JINJA_JINJA_TEMPLATE_H_

#include <ctime>
#include <memory>
#include <string_view>

#include "runtime/jinja/jinja_evaluator.h"
#include "runtime/jinja/jinja_syntax.h"
#include "varve/status.h"

namespace varve::jinja {

class Template {
 public:
  static constexpr size_t kMaxSourceBytes = size_t{1} << 20;

  // kInvalidArgument: it is no template; kUnimplemented: it has something that is not supported.
  static Result<Template> Parse(std::string_view source);

  // What it writes, with the marks of what was said. kInvalidArgument: it refuses what it was
  // given (raise_exception), fails, or passes a limit.
  Result<MarkedText> Run(NamedValues variables, std::time_t now,
                         const EvaluationLimits& limits = {}) const {
    return Evaluator(limits, now).Run(*block_, std::move(variables));
  }

 private:
  explicit Template(Block block) : block_(std::make_shared<const Block>(std::move(block))) {}
  std::shared_ptr<const Block> block_;
};

}  // namespace varve::jinja

#endif  // VARVE_RUNTIME_JINJA_JINJA_TEMPLATE_H_
