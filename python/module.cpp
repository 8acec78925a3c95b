// SPDX-License-Identifier: Apache-2.0
// The module metronome._native: what the package of Python calls. The package checks and documents
// the arguments; nobody else calls these functions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "core/model/model_catalogue.h"
#include "engines/engines.h"
#include "models/models.h"
#include "python/arrow.h"
#include "python/command_call.h"
#include "python/policy_view.h"
#include "python/python_policy.h"
#include "python/python_router.h"
#include "python/tables.h"
#include "python/variant_results.h"
#include "python/work.h"
#include "system/host_signals.h"
#include "system/parallel.h"
#include "system/progress.h"
#include "tools/commands/run_choice.h"

namespace nb = nanobind;

namespace metronome::python {
namespace {

// As main() of the program does.
void register_all() {
  prepare_stacks();
  register_engines();
  register_models();
  register_backends();
  set_models_folder(fetched_models_folder());
  leave_signals_to_host(true);
}

VariantResults run(const ScenarioSource& source, const RunChoice& choice,
                   const nb::object& progress) {
  VariantProgress tell;
  if (!progress.is_none()) {
    tell = [&progress](const std::string& name, std::size_t num_ended, std::size_t num_total) {
      const nb::gil_scoped_acquire acquired;
      progress(name, num_ended, num_total);
    };
  }
  VariantResults results;
  call_without_lock([&] { results = run_variants(source, choice, tell); });
  return results;
}

std::vector<std::string> save(const VariantResults& results, const std::string& folder,
                              const std::vector<std::string>& notes) {
  std::vector<std::string> left_out;
  call_without_lock([&] { left_out = save_results(results, folder, notes); });
  return left_out;
}

// Returns the exit code of a call. `texts` gets what it printed, also when it throws.
template <class Call>
int exit_code_of(nb::list& texts, const Call& call) {
  CommandAnswer answer;
  const auto tell = [&] {
    texts.append(answer.output);
    texts.append(answer.errors);
  };
  try {
    call_without_lock([&] { call(answer); });
  } catch (...) {
    tell();
    throw;
  }
  tell();
  return answer.exit_code;
}

int command(const std::string& name, const std::vector<std::string>& arguments,
            const std::optional<ScenarioSource>& given, nb::list texts) {
  return exit_code_of(texts,
                      [&](CommandAnswer& answer) { call_command(name, arguments, given, answer); });
}

int tune(const std::vector<std::string>& arguments, const std::optional<ScenarioSource>& given,
         const nb::object& elsewhere, nb::list texts) {
  const auto ask = [&elsewhere](const TrialPlace& place) {
    const nb::gil_scoped_acquire acquired;
    return nb::cast<std::string>(elsewhere(place.setting, place.load, place.num_requests));
  };
  return exit_code_of(texts,
                      [&](CommandAnswer& answer) { call_tune(arguments, given, ask, answer); });
}

std::unique_ptr<TuneTrials> new_trials(const std::vector<std::string>& arguments,
                                       const std::optional<ScenarioSource>& given) {
  std::unique_ptr<TuneTrials> trials;
  call_without_lock([&] { trials = tune_trials(arguments, given); });
  return trials;
}

std::string trial_line(TuneTrials& trials, std::size_t setting, double load,
                       std::size_t num_requests) {
  std::string line;
  call_without_lock([&] { line = trials.line_of({setting, load, num_requests}); });
  return line;
}

int serve(ServerHost& host, const std::vector<std::string>& arguments,
          const std::optional<ScenarioSource>& given, const nb::object& on_ready, nb::list texts) {
  return exit_code_of(texts, [&](CommandAnswer& answer) {
    const auto tell = [&](std::uint16_t port) {
      const nb::gil_scoped_acquire acquired;
      on_ready(port, answer.errors);
    };
    call_serve(arguments, given, host, tell, answer);
  });
}

template <nb::dict (*kTable)(const RunRecord&)>
nb::dict table_of(const VariantResult& result) {
  return kTable(result.outcome.record);
}

// The name, whether it is whole, least, most, default and meaning of each key.
using KeyTuples = std::vector<std::tuple<std::string, bool, double, double, double, std::string>>;

OwnKeys own_keys_of(const KeyTuples& tuples) {
  OwnKeys keys;
  for (const auto& [key, is_whole, least, most, by_default, meaning] : tuples) {
    keys.push_back({key, is_whole, least, most, by_default, meaning});
  }
  return keys;
}

void define_types(nb::module_& module) {
  nb::class_<ScenarioSource>(module, "ScenarioSource", "A scenario: a file's path, or a text.")
      .def(
          "__init__",
          [](ScenarioSource* self, std::string name, std::string text, bool has_lines,
             std::vector<std::string> notes) {
            new (self)
                ScenarioSource{std::move(text), std::move(name), has_lines, std::move(notes)};
          },
          nb::arg("name"), nb::arg("text") = "", nb::arg("has_lines") = true,
          nb::arg("notes") = std::vector<std::string>())
      .def_ro("name", &ScenarioSource::name)
      .def_ro("text", &ScenarioSource::text)
      .def_ro("has_lines", &ScenarioSource::has_lines)
      .def_ro("notes", &ScenarioSource::notes);
  nb::class_<VariantResult>(module, "VariantResult", "One variant's run.")
      .def_prop_ro("name", [](const VariantResult& r) { return r.outcome.result.info.label; })
      .def_prop_ro("digest", [](const VariantResult& r) { return r.outcome.result.info.digest; })
      .def_prop_ro("output_digest",
                   [](const VariantResult& r) { return r.outcome.result.info.output_digest; })
      .def_prop_ro("warnings", [](const VariantResult& r) { return r.outcome.warnings; })
      .def_prop_ro("elapsed_ms", [](const VariantResult& r) { return r.outcome.elapsed_ms; })
      .def_prop_ro("completed",
                   [](const VariantResult& r) { return r.outcome.result.summary.completed; })
      .def("result_json", [](const VariantResult& r) { return result_json(r.outcome.result); })
      .def("requests", table_of<requests_table>)
      .def("steps", table_of<steps_table>)
      .def("prefills", table_of<prefills_table>)
      .def("preemptions", table_of<preemptions_table>)
      .def("gaps", table_of<gaps_table>);
}

void define_functions(nb::module_& module) {
  module.attr("version") = METRONOME_VERSION;
  module.def(
      "run",
      [](const ScenarioSource& source, std::vector<std::string> assignments,
         std::vector<std::string> variants, std::optional<std::uint64_t> seed, std::string backend,
         const nb::object& progress) {
        return run(source, {std::move(assignments), std::move(variants), seed, std::move(backend)},
                   progress);
      },
      nb::arg("source"), nb::arg("assignments"), nb::arg("variants"), nb::arg("seed").none(),
      nb::arg("backend"), nb::arg("progress").none(), "Runs variants of a scenario.");
  module.def("save", save, nb::arg("results"), nb::arg("folder"), nb::arg("notes"),
             "Writes the files of `metronome run`; returns those that are too large unasked.");
  module.def("summary_json", summary_text, nb::arg("results"));
  module.def("table", table_text, nb::arg("results"));
  module.def("report_html", report_page, nb::arg("results"), nb::arg("notes"));
  module.def("arrow_stream", arrow_stream, nb::arg("table"),
             "The columns of a table, as a stream of the C data interface of Arrow.");
}

void define_commands(nb::module_& module) {
  module.def("commands", callable_commands);
  module.def("command", command, nb::arg("name"), nb::arg("arguments"), nb::arg("given").none(),
             nb::arg("texts"),
             "Calls a command; returns its exit code, and appends what it printed to texts.");
  module.def("tune", tune, nb::arg("arguments"), nb::arg("given").none(), nb::arg("elsewhere"),
             nb::arg("texts"),
             "As command('tune'), with elsewhere(setting, load, requests) for its trials: it "
             "returns their lines, or an empty text for one to run here.");
  nb::class_<TuneTrials>(module, "TuneTrials", "The trials of such a search.")
      .def(nb::new_(&new_trials), nb::arg("arguments"), nb::arg("given").none())
      .def("line", trial_line, nb::arg("setting"), nb::arg("load"), nb::arg("num_requests"));
  nb::class_<ServerHost>(module, "ServerHost", "A server in this process.")
      .def(nb::init<>())
      .def("serve", serve, nb::arg("arguments"), nb::arg("given").none(), nb::arg("on_ready"),
           nb::arg("texts"),
           "Serves until it is stopped; on_ready(port, warnings) is called when clients may "
           "connect.")
      .def("stop", &ServerHost::stop,
           "Running requests end first; the second time it aborts them.");
  module.def("interrupting_signal", interrupting_signal);
  module.def("forget_calls_of_parent", forget_calls_of_parent);
}

void define_registration(nb::module_& module) {
  module.def(
      "register_router",
      [](std::string name, std::string summary, const KeyTuples& own, bool hears_blocks,
         double report_ms, nb::object make) {
        register_python_router({std::move(name), std::move(summary), own_keys_of(own), hears_blocks,
                                report_ms, std::move(make)});
      },
      nb::arg("name"), nb::arg("summary"), nb::arg("own_keys"), nb::arg("hears_blocks"),
      nb::arg("report_ms"), nb::arg("make"),
      "Registers a router that make(values of its keys) returns.");
  module.def(
      "register_policy",
      [](std::string name, std::string summary, std::vector<std::string> shared_keys,
         const KeyTuples& own, nb::object make) {
        register_python_policy({std::move(name), std::move(summary), std::move(shared_keys),
                                own_keys_of(own), std::move(make)});
      },
      nb::arg("name"), nb::arg("summary"), nb::arg("shared_keys"), nb::arg("own_keys"),
      nb::arg("make"), "Registers a policy that make(values of its keys) returns.");
  module.def(
      "compose",
      [](const std::vector<std::string>& arguments) {
        const ComposedScenario composed = compose(arguments);
        return nb::make_tuple(composed.name, composed.yaml, composed.notes,
                              composed.engine_version);
      },
      nb::arg("arguments"), "The name, text, notes and engine version of a scenario.");
}

}  // namespace
}  // namespace metronome::python

NB_MODULE(_native, module) {
  nb::set_leak_warnings(false);  // registered policies live as long as the process
  metronome::python::register_all();
  metronome::python::translate_errors();
  metronome::python::define_types(module);
  metronome::python::define_policy_view(module);
  metronome::python::define_router_view(module);
  metronome::python::define_functions(module);
  metronome::python::define_commands(module);
  metronome::python::define_registration(module);
}
