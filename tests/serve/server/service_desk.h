// SPDX-License-Identifier: Apache-2.0
// A service without sockets, and an engine for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/serve/server/serve_lab.h"

namespace metronome::testing {

// So slow that no answer of some tokens ends while a test looks, however slow the machine.
inline constexpr double kSlow = 0.01;

struct DeskOptions {
  std::int64_t max_waiting = 100;
  double speed = 1000;
  bool is_recorded = false;
  std::int64_t max_client_requests = 1024;
  std::int64_t max_client_tokens = 1 << 20;
  std::size_t max_unsent_bytes = 1 << 20;
  const char* model_name = "tiny";
  std::uint64_t id_salt = 0;
  std::int32_t max_model_len = 256;  // for clients; the engine's is 256
  std::int32_t num_drafts = 0;       // of a decode
};

// A service whose tasks run when the test says so.
class Desk {
 public:
  explicit Desk(const DeskOptions& options = {})
      : simulation_(served_simulation("engine: {max_num_seqs: 4, max_model_len: 256}\n"
                                      "kv_cache: {num_blocks: 64}\n"
                                      "scheduler: {policy: vllm, max_num_batched_tokens: 128}\n" +
                                      drafts_of(options))),
        model_(model_of(options)),
        clock_(options.speed),
        text_(*model_.tokenizer),
        engine_(simulation_, clock_, text_, options.max_waiting, [] {}),
        service(
            model_, engine_, clock_, simulation_.setup.kv_cache,
            {.version = "9.9",
             .id_salt = options.id_salt,
             .max_client_requests = options.max_client_requests,
             .max_client_tokens = options.max_client_tokens,
             .max_unsent_bytes = options.max_unsent_bytes,
             .num_drafts = options.num_drafts,
             .num_recorded = options.is_recorded ? [this] { return num_recorded; }
                                                 : std::function<std::int64_t()>()},
            [this](Work work) { add(std::move(work)); },
            [this](Service::Task task) { foreground.push_back(std::move(task)); }),
        thread_([this] { serve_until_stopped(engine_); }) {}
  ~Desk() {
    service.abort_all();
    clock_.stop();
    engine_.close();
    thread_.join();
  }

  std::shared_ptr<FakeClient> ask(const std::string& method, const std::string& target,
                                  const std::string& body = {}) {
    auto client = std::make_shared<FakeClient>();
    service.handle(method, target, body, client);
    return client;
  }
  std::shared_ptr<FakeClient> complete(const std::string& fields) {
    return ask("POST", "/v1/completions", R"({"prompt": "Hello", )" + fields + "}");
  }
  template <class Done>
  bool wait_until(const Done& done) {
    for (int tries = 0; tries < 60000 && !done(); ++tries) {
      service.handle_events();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return done();
  }
  bool wait_idle() {
    return wait_until([this] { return service.is_idle(); });
  }
  // The value of a metric in the page that is served.
  double metric(const std::string& name) {
    const std::string page = ask("GET", "/metrics")->last.body;
    const std::size_t at = page.find("\n" + name + "{");
    if (at == std::string::npos) return -1;
    return std::stod(page.substr(page.find("} ", at) + 2));
  }

 private:
  static ServedModel model_of(const DeskOptions& options) {
    ServedModel model = byte_model();
    model.name = options.model_name;
    model.max_model_len = options.max_model_len;
    return model;
  }

  static std::string drafts_of(const DeskOptions& options) {
    if (options.num_drafts == 0) return {};
    return "speculative: {method: eagle, num_speculative_tokens: " +
           std::to_string(options.num_drafts) + "}\n";
  }

  // Does short work at once, as if its thread were idle. Long work waits until the test says so.
  void add(Work work) {
    constexpr std::size_t kShort = 8192;
    if (work.num_bytes > kShort) return background.push_back(std::move(work));
    work.run();
    const Service::Task task = std::move(foreground.back());
    foreground.pop_back();
    task();
  }

  Simulation simulation_;
  ServedModel model_;
  ServeClock clock_;
  PlausibleText text_;
  LiveEngine engine_;

 public:
  std::int64_t num_recorded = 0;
  std::vector<Work> background;
  std::vector<Service::Task> foreground;
  Service service;

 private:
  std::thread thread_;
};

}  // namespace metronome::testing
