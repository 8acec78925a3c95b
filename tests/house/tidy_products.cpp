// SPDX-License-Identifier: Apache-2.0
// The rule that a product's name stands in its folder of engines/ alone, or a router's in its file
// of fleet/routers/.
#include <algorithm>
#include <cctype>
#include <iterator>

#include "tests/house/tidy.h"

namespace metronome::testing {
namespace {

// In lower case.
constexpr std::string_view kProducts[] = {"vllm",      "sglang",    "tensorrt", "trtllm",
                                          "llama_cpp", "llama.cpp", "llamacpp", "sarathi",
                                          "fastgen",   "orca"};

struct Rest {
  std::string_view path;
  std::size_t num_names;
};

// Formats of other tools, sentences for people, and what is left of the time before the rule. These
// numbers only fall.
constexpr Rest kRest[] = {
    {"core/engine/engine_config.cpp", 10},
    {"core/engine/policies/registry.cpp", 2},
    {"core/engine/scheduler_config.cpp", 3},
    {"core/scenario/scenario_fields.cpp", 13},
    {"core/scenario/speculative_config.cpp", 5},
    {"core/workload/session_config.cpp", 1},
    {"sim/drafts/acceptance_log.cpp", 1},
    {"sim/profile/profile_folder.cpp", 2},
    {"core/metrics/figures.cpp", 4},
    {"reports/files/result_names.h", 3},
    {"reports/measured/formats.cpp", 13},
    {"reports/measured/formats.h", 4},
    {"reports/measured/serving_benchmarks.cpp", 8},
    {"reports/terminal/log_gaps.cpp", 1},
    {"serve/client/bench_serve.cpp", 2},
    {"serve/client/bench_serve.h", 1},
    {"serve/server/api_known_fields.cpp", 1},
    {"serve/server/serve_metrics.cpp", 28},
    {"study/calibrate/calibrate_steps.cpp", 2},
    {"study/calibrate/calibrate_steps.h", 1},
    {"study/recorded/logged_run.h", 1},
    {"study/sweep/sweep_points.cpp", 1},
    {"tools/commands/cmd_advise.cpp", 3},
    {"tools/commands/cmd_bench_serve.cpp", 9},
    {"tools/commands/cmd_calibrate.cpp", 10},
    {"tools/commands/cmd_chat.cpp", 1},
    {"tools/commands/cmd_decisions.cpp", 5},
    {"tools/commands/cmd_diagnose.cpp", 2},
    {"tools/commands/diagnose_help.h", 7},
    {"tools/commands/cmd_list.cpp", 1},
    {"tools/commands/cmd_report.cpp", 2},
    {"tools/commands/cmd_serve.cpp", 2},
    {"tools/commands/cmd_sweep.cpp", 3},
    {"tools/commands/cmd_validate.cpp", 3},
    {"tools/commands/cmd_verify.cpp", 3},
    {"tools/commands/local_model.cpp", 3},
    {"tools/commands/tune_question.cpp", 2},
};

// Whether an identifier or a word of a text begins at `at`.
bool begins_word(std::string_view text, std::size_t at) {
  if (at == 0 || std::isalpha(static_cast<unsigned char>(text[at - 1])) == 0) return true;
  const bool is_upper = std::isupper(static_cast<unsigned char>(text[at])) != 0;
  return is_upper && std::isupper(static_cast<unsigned char>(text[at - 1])) == 0;
}

// Behind the name that begins at `at`; `at` itself if there is none.
std::size_t end_of_name(std::string_view text, std::size_t at) {
  for (const std::string_view name : kProducts) {
    const std::string_view here = text.substr(at, name.size());
    const bool is_equal =
        std::equal(here.begin(), here.end(), name.begin(), name.end(), [](char given, char wanted) {
          return std::tolower(static_cast<unsigned char>(given)) == wanted;
        });
    if (is_equal && begins_word(text, at)) return at + name.size();
  }
  return at;
}

// The lines with names of products outside comments, one entry a name.
std::vector<std::size_t> lines_of_names(std::string_view text) {
  const std::string code = without_comments(text);
  std::vector<std::size_t> lines;
  std::size_t line = 1;
  for (std::size_t at = 0; at < code.size();) {
    const std::size_t end = end_of_name(code, at);
    if (end > at) lines.push_back(line);
    if (code[at] == '\n') ++line;
    at = std::max(end, at + 1);
  }
  return lines;
}

// The first line that compares a policy with a name of one; 0: there is none.
std::size_t line_of_comparison(std::string_view text) {
  const std::string code = without_comments(text);
  for (const char* comparison : {"policy == \"", "policy != \"", "policy.name == \"",
                                 "policy->name == \"", "policy.name != \"", "policy->name != \""}) {
    const std::size_t at = code.find(comparison);
    if (at == std::string::npos) continue;
    return 1 + static_cast<std::size_t>(
                   std::count(code.begin(), code.begin() + std::ptrdiff_t(at), '\n'));
  }
  return 0;
}

std::size_t num_allowed(std::string_view path) {
  const auto* const rest = std::find_if(std::begin(kRest), std::end(kRest),
                                        [path](const Rest& one) { return one.path == path; });
  return rest == std::end(kRest) ? 0 : rest->num_names;
}

}  // namespace

std::vector<Violation> check_product_names(const SourceFile& file) {
  bool may_name = false;
  for (const std::string_view folder : {"engines/", "fleet/routers/", "tests/"}) {
    may_name = may_name || file.path.starts_with(folder);
  }
  if (!is_source(file.path) || may_name) return {};
  if (const std::size_t line = line_of_comparison(file.text); line > 0) {
    return {{file.path, line, "compares a policy's name: what differs is a field of PolicyInfo"}};
  }
  const std::vector<std::size_t> lines = lines_of_names(file.text);
  const std::size_t allowed = num_allowed(file.path);
  if (lines.size() == allowed) return {};
  if (lines.size() > allowed) {
    return {{file.path, lines.back(),
             std::to_string(lines.size()) + " names of products in code, at most " +
                 std::to_string(allowed) + ": they belong into engines/ or fleet/routers/"}};
  }
  return {{file.path, 0,
           "has " + std::to_string(lines.size()) + " names of products, fewer than the " +
               std::to_string(allowed) + " of tests/house/tidy_products.cpp: lower that number"}};
}

std::vector<Violation> check_product_list(const std::vector<SourceFile>& files) {
  std::vector<Violation> violations;
  for (const Rest& rest : kRest) {
    const bool is_there = std::any_of(files.begin(), files.end(), [&rest](const SourceFile& file) {
      return file.path == rest.path;
    });
    if (is_there && rest.num_names > 0) continue;
    violations.push_back({std::string(rest.path), 0, "is listed in tests/house/tidy_products.cpp"});
  }
  return violations;
}

}  // namespace metronome::testing
