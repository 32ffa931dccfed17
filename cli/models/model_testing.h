// For tests that need a real model: suites are named *OnModels and skip, visibly, where the model
// is not on the machine. `./dev check models` runs them.

#ifndef VARVE_CLI_MODELS_MODEL_TESTING_H_
#define VARVE_CLI_MODELS_MODEL_TESTING_H_

#include <gtest/gtest.h>

#include <string>

#include "cli/models/found_models.h"

// Sets the std::string `path` to the file of the model, or ends the test as skipped. In SetUp or in
// the test itself.
#define VARVE_FIND_MODEL_OR_SKIP(name, path) \
  VARVE_FIND_MODEL_OF_KIND_OR_SKIP(name, ::varve::cli::ModelKind::kText, path)
#define VARVE_FIND_SPEECH_MODEL_OR_SKIP(name, path) \
  VARVE_FIND_MODEL_OF_KIND_OR_SKIP(name, ::varve::cli::ModelKind::kSpeech, path)
#define VARVE_FIND_MODEL_OF_KIND_OR_SKIP(name, kind, path)                             \
  do {                                                                                 \
    ::varve::Result<std::string> found_model = ::varve::cli::ResolveModel(name, kind); \
    if (!found_model.ok()) GTEST_SKIP() << found_model.status().message();             \
    (path) = *std::move(found_model);                                                  \
  } while (false)

#endif  // VARVE_CLI_MODELS_MODEL_TESTING_H_
