// SPDX-License-Identifier: Apache-2.0
// A model that this process serves: its scenario, tokenizer and chat template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/run/run.h"
#include "serve/server/api_request.h"

namespace metronome {

struct PreparedVariant;

struct LocalModelChoice {
  std::string backend = "sim";
  std::string variant = {};        // required if a scenario has several
  std::string model_name = {};     // for clients; empty: as in the scenario
  std::string tokenizer = {};      // a file; empty: the model's own
  std::string chat_template = {};  // a file; empty: the model's own
  // Whose sampling defaults hold, as in vLLM: those of the model's generation_config.json (auto),
  // none (vllm), or those of the file in another folder.
  std::string generation_config = "auto";
};

// Whether MODEL on the command line is a scenario.
bool is_scenario_name(std::string_view name);

class LocalModel {
 public:
  // `name` is a scenario (.yaml), or a model: then the scenario is a plain one, with prefix caching
  // and chunks, and errors call it `name`. A backend that computes does not draw the weights of a
  // published model, as its answers would be noise, unless the scenario's `weights` is random.
  // Throws ConfigError and UsageError.
  LocalModel(const std::string& name, const std::vector<std::string>& assignments,
             const LocalModelChoice& choice);
  ~LocalModel();

  const PreparedVariant& variant() const;
  PreparedRun& run();
  // Prepares the scenario anew, with these KEY=VALUE as well.
  void use(const std::vector<std::string>& settings);
  Backend& backend() { return *backend_; }
  const ServedModel& served() const { return served_; }
  // Whether step times are simulated, and answers are plausible text.
  bool is_simulated() const { return !backend_->is_measured(); }

  // Of tokenizer, sampling and weights, one line each.
  std::vector<std::string> warnings() const;
  // Prints model, engine, tokenizer, chat template, sampling, weights and warnings.
  void print_header(double speed = 1) const;

 private:
  void find_sampling_defaults();

  std::string name_;
  std::vector<std::string> assignments_;
  LocalModelChoice choice_;
  std::unique_ptr<Backend> backend_;
  std::vector<PreparedVariant> variants_;  // one
  std::string tokenizer_text_;
  std::string sampling_text_;     // empty: no file has defaults
  std::string sampling_warning_;  // of a default that the backend does not take
  ServedModel served_;
};

}  // namespace metronome
