// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/scenario_choice.h"

#include <filesystem>
#include <iostream>
#include <iterator>

#include "core/base/files.h"
#include "core/base/names.h"
#include "core/base/wrapped_text.h"
#include "reports/terminal/text.h"
#include "system/file_writer.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

// --command @FILE and --command -.
void read_command_text(std::string& command) {
  if (command == "-") {
    command.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
    if (command.empty()) throw UsageError("--command: standard input is empty; allowed: a command");
  } else if (command.starts_with('@')) {
    command = read_file(command.substr(1), "the text of a server's command");
  }
}

// The short forms of --workload.
void resolve_preset(ScenarioOptions& scenario) {
  const auto choose = [&scenario](bool is_given, const char* name) {
    if (!is_given) return;
    std::string& workload = scenario.request.workload;
    if (!workload.empty() && workload != name) {
      throw UsageError("--" + std::string(name) + ": contradicts '" + printable(workload) +
                       "'; allowed: one kind of requests");
    }
    workload = name;
  };
  choose(scenario.is_chat, "chat");
  choose(scenario.is_rag, "rag");
}

// Only a composed scenario may be replaced.
void refuse_foreign_file(const std::string& path) {
  if (!path_exists(path)) return;
  if (read_file(path).value_or("").starts_with("# " + std::string(kComposedHead))) return;
  throw UsageError("--out: " + printable(path) +
                   " exists and is not a composed scenario; allowed: another folder, or no --out");
}

}  // namespace

void add_scenario_options(ScenarioOptions& scenario, OptionList& options, bool has_engine) {
  constexpr RealRange kMilliseconds = {0.001, 3.6e6, "milliseconds"};
  ScenarioRequest& request = scenario.request;
  const OptionList own = {
      {"command TEXT", &request.command,
       "instead of SCENARIO: a server's command as pasted, from a shell, a Dockerfile, compose or "
       "k8s YAML, or the arguments in a log; @FILE reads it from a file, - from standard input"},
      {"model NAME", &request.model, "instead of SCENARIO or of the command's model: a model"},
      {"gpu NAME", &request.gpu,
       "the GPU of --command or --model: a name of `metronome list hardware`, or a file of its "
       "figures (docs/guide/gpu_file.md); NAME=PRICE adds the price of an hour, and "
       "NAME,NAME,... compares several"},
      {"engine-version V", &request.engine_version, "version of the engine: 0.11.0"},
      {"quantization FORMAT", &request.quantization, "format of the weights, as `quantization:`"},
      {"tp N", &request.tensor_parallel_size, "tensor parallel size", EmptyText::Refused,
       WholeRange{1, 64}},
      {"rate R", &request.rate, "requests per second, Poisson", EmptyText::Refused,
       RealRange{0, 1e6, "requests per second", true}},
      {"clients N", &request.clients, "clients in a closed loop, each with one request at a time",
       EmptyText::Refused, WholeRange{1, 1'000'000}},
      {"prompt TOKENS", &request.prompt,
       "prompt lengths: 1500, 500-2000 (evenly), or 1020:4142 (lognormal, median and p99)"},
      {"output TOKENS", &request.output, "output lengths, in the same forms"},
      {"requests N", &request.num_requests, "number of requests", EmptyText::Refused,
       WholeRange{1, 10'000'000}},
      {"chat", &scenario.is_chat, "lengths and limits of people who chat (--workload chat)"},
      {"rag", &scenario.is_rag, "those of questions over passages (--workload rag)"},
      {"workload PRESET", &request.workload, "one of `metronome list workloads`"},
      {"sharegpt FILE", &request.sharegpt, "requests of a file with ShareGPT conversations"},
      {"tokenizer FILE", &request.tokenizer, "tokenizer.json that measures --sharegpt"},
      {"trace FILE", &request.trace, "requests of another trace (docs/guide/traces.md)"},
      {"ttft MS", &request.ttft_ms, "limit of the first token", EmptyText::Refused, kMilliseconds},
      {"itl MS", &request.itl_ms, "limit of every gap between tokens", EmptyText::Refused,
       kMilliseconds},
      {"tpot MS", &request.tpot_ms, "limit of the mean gap of a request", EmptyText::Refused,
       kMilliseconds},
  };
  options.insert(options.end(), own.begin(), own.end());
  if (has_engine) {
    options.push_back({"engine NAME", &request.engine,
                       "engine of --model, or of flags without the server's name: a policy of "
                       "`metronome list flags`"});
  }
}

bool is_composed(const CommandText& text, const CommandLine& line, ScenarioOptions& scenario) {
  const bool is_given = scenario.is_given();
  if (is_given && !line.files.empty()) {
    throw UsageError(std::string(text.name) + ": has both " + std::string(text.file_name) + " '" +
                     printable(line.file()) +
                     "' and options that describe one; allowed: one of them, and --set for keys "
                     "of a file");
  }
  if (!is_given && line.files.empty()) {
    throw UsageError(std::string(text.name) + ": no " + std::string(text.file_name) +
                     " given; allowed: a " + std::string(text.file_kind) +
                     ", --command with a server's command, or --model and --gpu (see `metronome " +
                     std::string(text.name) + " --help`)");
  }
  if (is_given) {
    read_command_text(scenario.request.command);
    resolve_preset(scenario);
  }
  return is_given;
}

ChosenScenario choose_scenario(const CommandText& text, const CommandLine& line,
                               ScenarioOptions& scenario, const std::string& out) {
  if (!is_composed(text, line, scenario)) return {line.file(), {}};
  ComposedScenario composed = compose_scenario(scenario.request);
  std::string folder = out;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const fs::path path =
      folder.empty() ? fs::path("results") / (composed.name + ".yaml") : fs::path(folder + ".yaml");
  refuse_foreign_file(path.string());
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  replace_file(path.string(), composed.yaml);
  return {path.string(), std::move(composed.notes), true, std::move(composed.engine_version)};
}

void print_choice(std::ostream& out, const ChosenScenario& chosen) {
  for (const std::string& note : chosen.notes) {
    out << "note        " << wrapped(printable(note), 12, output_columns());
  }
}

}  // namespace metronome
