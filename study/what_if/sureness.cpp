// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/sureness.h"

#include <fmt/core.h>

#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "reports/files/result_bands.h"
#include "sim/simulation.h"
#include "study/run/run_bands.h"
#include "study/what_if/sides.h"

namespace metronome {
namespace {

const Trial& advised(const WhatIf& what_if) {
  return what_if.chosen ? what_if.trials[*what_if.chosen] : what_if.baseline;
}

// "with steps 1.12 times as long it breaks the goal: p99 TTFT 1,204 ms".
std::string end_text(const Trial& trial, double step_scale, const WhatIf& what_if) {
  const std::string sides = sides_text(trial, what_if);
  return fmt::format("with steps {:.2f} times as long {}", step_scale,
                     trial.keeps_all ? "it is kept: " + sides : "it is broken: " + sides);
}

std::string range_text(const DrawBand::Range& range) {
  return ms_text(range.low) + " to " + ms_text(range.high) + " ms";
}

std::string draws_text(const DrawBand& draws, const WhatIf& what_if) {
  std::string text =
      fmt::format("Over {} draws of the log's requests, {}: p99 ITL {}, p99 TTFT {}",
                  draws.num_draws, what_if.chosen ? "with the change" : "without a change",
                  range_text(draws.p99_itl), range_text(draws.p99_ttft));
  if (what_if.goals.empty()) return text + ".";
  return text + fmt::format("; {} of them {} the goal.", draws.num_kept,
                            draws.num_kept == 1 ? "keeps" : "keep");
}

void append_draws(const DrawBand& draws, JsonText& json) {
  json.key("draws").begin_object();
  json.field("count", draws.num_draws);
  json.field("keep_goal", draws.num_kept);
  json.field("least_p99_itl_ms", draws.p99_itl.low);
  json.field("most_p99_itl_ms", draws.p99_itl.high);
  json.field("least_p99_ttft_ms", draws.p99_ttft.low);
  json.field("most_p99_ttft_ms", draws.p99_ttft.high);
  json.end_object();
}

}  // namespace

Sureness sureness_of(const WhatIf& what_if, Replays& replays) {
  const Trial& trial = advised(what_if);
  Sureness sureness;
  sureness.accuracy = accuracy_of(prepare_simulation(trial.scenario), trial.summary);
  if (!sureness.accuracy) return sureness;
  const auto replayed = [&](const std::vector<Setting>& changes, double error) {
    Trial at_end = replays.replay(changes, {}, nullptr, 1 + error);
    judge(at_end, what_if);
    return at_end;
  };
  sureness.fast = replayed(trial.changes, sureness.accuracy->tpot.low);
  sureness.slow = replayed(trial.changes, sureness.accuracy->tpot.high);
  if (sureness.slow->keeps_all) return sureness;
  for (const std::size_t i : what_if.front) {
    if (i == what_if.chosen) continue;
    if (!replayed(what_if.trials[i].changes, sureness.accuracy->tpot.high).keeps_all) continue;
    sureness.safe = i;
    break;
  }
  return sureness;
}

TextBlock sureness_block(const WhatIf& what_if) {
  const Sureness& sureness = what_if.sureness;
  if (!sureness.accuracy) return {};
  TextBlock block = {.title = "how sure", .lines = {{sureness.accuracy->text() + "."}}};
  if (sureness.draws) block.lines.push_back({draws_text(*sureness.draws, what_if)});
  // Without a goal there is nothing to keep at the ends.
  if (what_if.goals.empty() || !sureness.fast || !sureness.slow) return block;
  const ErrorBand& error = sureness.accuracy->tpot;
  block.lines.push_back(
      {fmt::format("The goal {}: {}; {}.", what_if.chosen ? "with the change" : "without a change",
                   end_text(*sureness.fast, 1 + error.low, what_if),
                   end_text(*sureness.slow, 1 + error.high, what_if))});
  if (sureness.safe) {
    block.lines.push_back(
        {"There " + joined(what_if.trials[*sureness.safe].changes) + " keeps it, too."});
  }
  return block;
}

void append_sureness(const WhatIf& what_if, JsonText& json) {
  const Sureness& sureness = what_if.sureness;
  json.key("sureness");
  if (!sureness.accuracy) {
    json.null();
    return;
  }
  json.begin_object();
  append_accuracy(*sureness.accuracy, json);
  const auto end = [&](const char* key, const std::optional<Trial>& trial, double error) {
    json.key(key);
    json.begin_object();
    json.field("step_scale", 1 + error);
    json.field("keeps_goal", trial->keeps_all);
    json.field("p99_ttft_ms", trial->summary.ttft.p99_ms);
    json.field("p99_itl_ms", trial->summary.itl.p99_ms);
    json.field("max_itl_ms", trial->summary.itl.max_ms);
    json.field("output_throughput", trial->summary.output_throughput);
    json.end_object();
  };
  end("fast", sureness.fast, sureness.accuracy->tpot.low);
  end("slow", sureness.slow, sureness.accuracy->tpot.high);
  json.key("safe");
  if (sureness.safe) {
    json.value(joined(what_if.trials[*sureness.safe].changes));
  } else {
    json.null();
  }
  if (sureness.draws) append_draws(*sureness.draws, json);
  json.end_object();
}

}  // namespace metronome
