// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/chat_demo.h"

#include <algorithm>
#include <fmt/core.h>
#include <iostream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/engine/event.h"
#include "core/scenario/engine_setup.h"
#include "models/text/tokenizer.h"
#include "reports/terminal/text.h"
#include "serve/server/api_request.h"
#include "serve/server/engine_thread.h"
#include "serve/server/local_client.h"
#include "study/run/variant_run.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/local_engine.h"

namespace metronome {
namespace {

constexpr std::int32_t kShortTokens = 48;    // of the short prompt's answer
constexpr std::int32_t kLongTokens = 16;     // of the long prompt's answer
constexpr std::size_t kTokensBefore = 8;     // of the short answer, when the long prompt arrives
constexpr std::int32_t kLongPrompt = 1200;   // tokens, about, or what the context has room for
constexpr std::int32_t kChunk = 64;          // tokens a step
constexpr std::size_t kMaxShownDecodes = 3;  // steps without a prompt that are shown in a row

constexpr const char* kShortPrompt = "Tell me about the sea in a few sentences.";

// A logbook of so many days, and a question about it.
std::string long_prompt(int num_days) {
  std::string text = "Here is the logbook of a lighthouse.\n";
  for (int day = 1; day <= num_days; ++day) {
    text += fmt::format(
        "Day {}: the wind blew from the {}, {} ships passed, and the lamp burned {} hours.\n", day,
        day % 3 == 0   ? "north"
        : day % 3 == 1 ? "west"
                       : "south",
        day * 7 % 23, day * 5 % 11 + 3);
  }
  return text + "How many ships passed on day 1?";
}

Json chat_body(const std::string& prompt, std::int32_t max_tokens) {
  Json message = Json::object();
  message["role"] = "user";
  message["content"] = prompt;
  Json body = Json::object();
  body["messages"] = Json::array();
  body["messages"].push_back(message);
  body["temperature"] = 0;
  body["max_tokens"] = max_tokens;
  return body;
}

// The tokens of a conversation as the model's template writes it. Throws ApiError where they and
// the answer exceed the context.
std::int32_t count_prompt(const ServedModel& model, const Json& body) {
  return parse_generation(ApiKind::Chat, body.dump(), model, 0).num_prompt_tokens;
}

// Nothing where prompt and answer exceed the context.
std::optional<std::int32_t> fitting_prompt(const ServedModel& model, const Json& body) {
  try {
    return count_prompt(model, body);
  } catch (const ApiError&) {
    return std::nullopt;
  }
}

// The logbook with about kLongPrompt tokens, or with as many days as the context has room for.
// Throws UsageError where the context is too short for the demonstration.
std::string fitting_document(const ServedModel& model) {
  try {
    count_prompt(model, chat_body(kShortPrompt, kShortTokens));
  } catch (const ApiError& error) {
    throw UsageError(std::string("--demo: the short prompt: ") + error.what());
  }
  const auto num_tokens = [&](int num_days) {
    return static_cast<std::int32_t>(model.tokenizer->encode(long_prompt(num_days), false).size());
  };
  int num_days = 1;
  while (num_tokens(num_days) < kLongPrompt) ++num_days;
  std::optional<std::int32_t> fitting;
  for (; num_days > 0; --num_days) {
    fitting = fitting_prompt(model, chat_body(long_prompt(num_days), kLongTokens));
    if (fitting) break;
  }
  if (fitting.value_or(0) <= kChunk) {
    throw UsageError(
        fmt::format("--demo: the model's context is {} tokens; allowed: room for a prompt of "
                    "several chunks of {} tokens, and its answer",
                    model.max_model_len, kChunk));
  }
  return long_prompt(num_days);
}

// Prints steps as they end: prompts with their tokens, decodes by number.
class StepPrinter final : public EventSink {
 public:
  void on_event(const Event&, const Request&) override {}
  void on_step(const StepRecord& step, std::span<const ScheduledChunk>,
               const RequestTable&) override {
    num_decode_steps_ = step.num_prefill_tokens > 0 ? 0 : num_decode_steps_ + 1;
    if (num_decode_steps_ > kMaxShownDecodes) {
      if (num_decode_steps_ == kMaxShownDecodes + 1) std::cout << "  ...\n";
      return;
    }
    const std::string prompt =
        step.num_prefill_tokens > 0 ? fmt::format("{} prompt tokens", step.num_prefill_tokens) : "";
    const std::string decodes = step.num_decode_tokens > 0
                                    ? fmt::format("{} decode{}", step.num_decode_tokens,
                                                  step.num_decode_tokens > 1 ? "s" : "")
                                    : "";
    std::cout << "  step " << padded(std::to_string(step.step_index), 4) << padded(prompt, 20)
              << padded(decodes, 12) << shown_ms(step.finished_at - step.started_at) << '\n';
  }

 private:
  static std::string padded(const std::string& text, std::size_t width) {
    return text + std::string(width - std::min(width - 1, text.size()), ' ');
  }

  std::size_t num_decode_steps_ = 0;
};

// Submits a request after a step, on the engine's thread: after the same step in every run, however
// fast the steps are. Where the requests before it end sooner, it follows them.
class SecondRequest final : public EventSink {
 public:
  // After `num_decode_steps` steps with decodes. The engine outlives the sink.
  SecondRequest(LiveEngine& engine, LiveRequest request, std::size_t num_decode_steps)
      : engine_(engine), request_(std::move(request)), num_steps_left_(num_decode_steps) {}

  void on_event(const Event& event, const Request&) override {
    if (event.kind == EventKind::Ended) submit();
  }
  void on_step(const StepRecord& step, std::span<const ScheduledChunk>,
               const RequestTable&) override {
    if (step.num_decode_tokens > 0 && num_steps_left_ > 0 && --num_steps_left_ == 0) submit();
  }

 private:
  void submit() {
    if (!request_) return;
    if (!engine_.submit({std::move(*request_)})) throw std::runtime_error("the engine is closed");
    request_.reset();
  }

  LiveEngine& engine_;
  std::optional<LiveRequest> request_;
  std::size_t num_steps_left_;
};

struct DemoRun {
  LocalAnswer brief;  // of the short prompt
  LocalAnswer lengthy;
};

DemoRun run_once(LocalModel& local, const std::string& document) {
  local.run().load([] { throw_if_interrupted(); });
  LocalEngine here(local);
  LocalClient& client = here.client;
  catch_signals();
  StepPrinter printer;
  LiveRequest long_request = client.prepare(chat_body(document, kLongTokens));
  const auto lengthy = static_cast<std::uint64_t>(long_request.ticket);
  // The step of the short prompt gives the first token.
  SecondRequest second(here.engine, std::move(long_request), kTokensBefore - 1);
  EngineThread thread(here.engine, here.clock, {&printer, &second},
                      [&](const std::string& error) { client.fail(error); });
  const std::uint64_t brief = client.ask(chat_body(kShortPrompt, kShortTokens));
  DemoRun run;
  run.lengthy = client.finish(lengthy, {});
  run.brief = client.finish(brief, {});
  return run;
}

std::vector<std::string> row_of(const std::string& name, const DemoRun& run) {
  std::vector<TimeNs> gaps = run.brief.gaps();
  std::sort(gaps.begin(), gaps.end());
  if (gaps.empty()) gaps.push_back(0);
  return {name, shown_ms(gaps[gaps.size() / 2]), shown_ms(gaps.back()),
          shown_ms(run.lengthy.ttft())};
}

}  // namespace

int run_chat_demo(LocalModel& local) {
  const std::string document = fitting_document(local.served());
  local.print_header();
  const std::string whole = std::to_string(local.served().max_model_len);
  const struct {
    const char* name;
    const char* text;
    std::string budget;
  } ways[] = {
      {"whole prompt", "The long prompt is computed in one step:", whole},
      {"chunks", "The long prompt is computed in chunks, together with the other answer's tokens:",
       std::to_string(kChunk)},
  };
  std::vector<std::vector<std::string>> rows = {
      {"", "gaps p50", "longest gap", "long prompt's first token"}};
  std::vector<DemoRun> runs;
  for (const auto& way : ways) {
    std::cout << '\n' << way.text << '\n';
    local.use({"scheduler.max_num_batched_tokens=" + way.budget});
    runs.push_back(run_once(local, document));
    rows.push_back(row_of(way.name, runs.back()));
  }
  std::cout << "\nThe short prompt's answer:\n  " << one_line(runs[0].brief.text)
            << "\nThe long prompt's answer (" << runs[0].lengthy.num_prompt_tokens
            << " prompt tokens):\n  " << one_line(runs[0].lengthy.text) << "\n\n"
            << "The reader of the short answer saw:\n"
            << aligned_rows(rows);
  const bool are_equal =
      runs[0].brief.text == runs[1].brief.text && runs[0].lengthy.text == runs[1].lengthy.text;
  std::cout << (are_equal ? "Both ways gave the same texts.\n"
                          : "The two ways gave different texts.\n");
  return kExitDone;
}

}  // namespace metronome
