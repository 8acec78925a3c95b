// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the server: a model to serve, and clients that keep what they get.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/scenario/scenario.h"
#include "models/text/tokenizer.h"
#include "serve/server/api_request.h"
#include "serve/server/live_engine.h"
#include "serve/server/service.h"
#include "sim/simulation.h"
#include "tests/scratch_folder.h"

namespace metronome::testing {

inline ServedModel byte_model(bool computes = false) {
  ServedModel model;
  model.name = "tiny";
  model.root = "llama-3.2-1b";
  model.tokenizer = byte_tokenizer();
  model.vocab_size = 300;
  model.max_model_len = 256;
  model.computes = computes;
  model.orders_by_priority = false;
  model.seed = 7;
  model.answer_lengths = {5, 9, 30};
  return model;
}

// A scenario of these settings, ready to be simulated. The workload stands for nothing.
inline Simulation served_simulation(const std::string& settings) {
  const ScratchFolder folder;
  const std::string path =
      folder.write("s.yaml", "model: llama-3.2-1b\nhardware: h200\nseed: 3\n" + settings +
                                 "workload:\n  num_requests: 1\n"
                                 "  arrivals: {process: poisson, rate: 1}\n"
                                 "  prompt_tokens: {distribution: fixed, value: 10}\n"
                                 "  output_tokens: {distribution: fixed, value: 10}\n");
  return prepare_simulation(load_scenario(path, {}, std::nullopt).variants.front());
}

// Serves until the engine is closed, or its clock stopped.
inline void serve_until_stopped(LiveEngine& engine, std::span<EventSink* const> sinks = {}) {
  try {
    engine.serve(sinks);
  } catch (const ServeClock::Stopped&) {
  }
}

// An engine on its thread, and what it says.
class Served {
 public:
  using SinksOf = std::function<std::vector<EventSink*>(const LiveEngine&)>;

  // `speed` 0: real time.
  Served(PreparedRun& simulation, double speed, std::int64_t max_waiting,
         std::vector<EventSink*> sinks = {})
      : Served(simulation, speed, max_waiting, [&sinks](const LiveEngine&) { return sinks; }) {}
  Served(PreparedRun& simulation, double speed, std::int64_t max_waiting, const SinksOf& sinks_of)
      : clock(speed > 0 ? ServeClock(speed) : ServeClock()),
        text(*tokenizer_),
        engine(simulation, clock, text, max_waiting,
               [this] {
                 const std::lock_guard lock(mutex_);
                 has_news_ = true;
                 news_.notify_one();
               }),
        thread_([this, sinks = sinks_of(engine)] { serve_until_stopped(engine, sinks); }) {}
  ~Served() {
    engine.close();
    thread_.join();
  }

  // Takes events until `num_ended` requests have ended in all.
  void wait_for_ends(std::size_t num_ended) {
    while (num_ended_ < num_ended) {
      {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [this] { return has_news_; });
        has_news_ = false;
      }
      std::vector<LiveEvent> fresh;
      engine.drain_events(fresh);
      for (LiveEvent& event : fresh) {
        num_ended_ += event.kind == LiveEventKind::Ended ? 1 : 0;
        events.push_back(std::move(event));
      }
    }
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_ = byte_tokenizer();
  std::mutex mutex_;
  std::condition_variable news_;
  bool has_news_ = false;
  std::size_t num_ended_ = 0;

 public:
  ServeClock clock;
  PlausibleText text;
  LiveEngine engine;
  std::vector<LiveEvent> events;

 private:
  std::thread thread_;
};

// The payloads of "data: ...\n\n" events, in order.
inline std::vector<std::string> events_of(std::string_view stream) {
  std::vector<std::string> events;
  while (!stream.empty()) {
    const std::size_t end = stream.find("\n\n");
    if (end == std::string_view::npos || !stream.starts_with("data: ")) {
      events.emplace_back("malformed: " + std::string(stream));
      break;
    }
    events.emplace_back(stream.substr(6, end - 6));
    stream.remove_prefix(end + 2);
  }
  return events;
}

class FakeClient final : public Client {
 public:
  const std::string& address() const override { return from; }
  void reply(Reply made) override {
    ++num_replies;
    last = std::move(made);
  }
  void begin_stream() override { ++num_streams; }
  void write(std::string_view bytes) override { stream += bytes; }
  void end_stream() override { ++num_ends; }
  std::size_t room() const override { return num_free_bytes; }
  void flush(bool more) override {
    ++num_flushes;
    has_more = more;
    if (on_flush) on_flush();
  }

  int num_replies = 0, num_streams = 0, num_ends = 0, num_flushes = 0;
  std::string from = "127.0.0.1";
  Reply last;
  std::string stream;
  std::size_t num_free_bytes = SIZE_MAX;
  bool has_more = false;
  std::function<void()> on_flush;
};

}  // namespace metronome::testing
