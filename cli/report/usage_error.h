// What a person reads whose command line could not be understood: in the order of the words typed,
// with the word that was likely meant.

#ifndef VARVE_CLI_REPORT_USAGE_ERROR_H_
#define VARVE_CLI_REPORT_USAGE_ERROR_H_

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
class ParseError;
class Validator;
}  // namespace CLI

namespace varve::cli {

// The arguments with the short options of llama.cpp that have several letters (-ctk, -ctv, -cnv; -i
// is -cnv here) as the long ones that the parser knows.
std::vector<std::string> WithLongNames(int argc, const char* const* argv);

// Lines without their end. `arguments` are those that were parsed, without the program's name.
std::string DescribeUsageError(const CLI::App& app, const std::vector<std::string>& arguments,
                               const CLI::ParseError& error);

// A check of options: 0 or more. The parser's own spells its limit out in 309 digits.
const CLI::Validator& NotNegative();

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_USAGE_ERROR_H_
