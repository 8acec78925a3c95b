// The server without its sockets: endpoints, running answers, and what clients see of the engine.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "serve/server/answer.h"
#include "serve/server/api_request.h"
#include "serve/server/live_engine.h"
#include "serve/server/serve_metrics.h"

namespace metronome {

// A whole response.
struct Reply {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  std::string extra_header = {};  // "Retry-After: 1"; empty: none
};

// The connection that a request came on. It may go away at any time: then the calls do nothing.
class Client {
 public:
  virtual ~Client() = default;
  virtual void reply(Reply reply) = 0;
  // Status 200 and an event stream, which goes on until end_stream().
  virtual void begin_stream() = 0;
  virtual void write(std::string_view bytes) = 0;  // kept until flush()
  virtual void end_stream() = 0;
  virtual void flush() = 0;
};

struct ServiceOptions {
  std::string version;
  std::size_t inline_body_bytes = 8192;  // larger bodies are read in the background
};

// All of it runs on one thread, that of the connections; only `background` leads away from it.
class Service {
 public:
  using Task = std::function<void()>;

  // `background` runs a task on another thread, `foreground` on the service's own. All references
  // outlive the service.
  Service(const ServedModel& model, LiveEngine& engine, ServeClock& clock,
          const KvCacheLayout& cache, ServiceOptions options, std::function<void(Task)> background,
          std::function<void(Task)> foreground);

  // Answers, at once or later, on the client's connection.
  void handle(std::string_view method, std::string_view target, std::string body,
              std::shared_ptr<Client> client);
  // Nobody reads what the client was to get: its request ends.
  void leave(const Client* client);
  // Gives clients what the engine has made since the last call.
  void handle_events();

  // From now on requests are refused, those that run go on.
  void drain() { is_draining_ = true; }
  bool is_idle() const { return running_.empty() && background_bytes_ == 0; }
  // Ends what runs.
  void abort_all();
  // The engine is gone: ends what runs with this message, and refuses everything from now on.
  void fail(const std::string& message);

  ServeMetrics& metrics() { return metrics_; }

 private:
  using WallTime = std::chrono::steady_clock::time_point;

  // One choice of an answer: a request to the engine.
  struct Part {
    WallTime last_token{};
    TimeNs arrived = 0, admitted = kNoTime, first_token = kNoTime, latest_token = kNoTime;
    std::int32_t num_tokens = 0;
    std::int32_t prompt_tokens = 0;
  };
  struct Running {
    Running(Answer made, std::shared_ptr<Client> to, WallTime now)
        : answer(std::move(made)), client(std::move(to)), arrived(now) {}

    Answer answer;
    std::shared_ptr<Client> client;
    WallTime arrived;
    std::vector<Part> parts;
    bool has_begun = false;  // the head of the stream is written
    bool is_dirty = false;   // has news for the client
  };

  // What became of a body: a request to the engine, or an answer.
  struct Parsed {
    std::uint64_t number = 0;
    Reply reply = {};
    std::optional<ApiRequest> request = {};
  };
  using Parse = std::function<Parsed(const std::string& body)>;

  void read(std::string body, std::shared_ptr<Client> client, Parse parse);
  void take(Parsed parsed, const std::shared_ptr<Client>& client);
  Reply answer_now(std::string_view path, const std::string& body);
  Reply models_reply(std::string_view name) const;
  Reply tokenize_reply(const std::string& body) const;
  Reply detokenize_reply(const std::string& body) const;
  Reply metrics_reply();
  void generate(ApiKind kind, std::string body, std::shared_ptr<Client> client);
  void start(std::uint64_t number, ApiRequest request, const std::shared_ptr<Client>& client);
  void refuse(Client& client);
  void take_event(const LiveEvent& event, WallTime now);
  void take_token(Running& running, std::int32_t choice, const LiveEvent& event, WallTime now);
  void count_end(const Running& running, std::int32_t choice, EndReason reason, WallTime now);
  void write_news(std::uint64_t number);
  void finish(std::uint64_t number);
  void fail_one(std::uint64_t number, int status, const std::string& message);
  void abort_rest(std::uint64_t number);

  // The ticket of a choice: the number of its request, and which it is.
  static Ticket ticket_of(std::uint64_t number, std::int32_t choice) {
    return Ticket{number << 16 | static_cast<std::uint64_t>(choice)};
  }

  const ServedModel& model_;
  LiveEngine& engine_;
  ServeClock& clock_;
  const KvCacheLayout& cache_;
  ServiceOptions options_;
  std::function<void(Task)> background_;
  std::function<void(Task)> foreground_;
  ServeMetrics metrics_;

  std::unordered_map<std::uint64_t, std::unique_ptr<Running>> running_;  // by number
  std::unordered_map<const Client*, std::uint64_t> numbers_;             // of clients' requests
  // Whose requests are read in the background, and whether they have left.
  std::unordered_map<const Client*, std::shared_ptr<std::atomic<bool>>> parsing_;
  std::uint64_t next_number_ = 0;
  std::size_t background_bytes_ = 0;  // of bodies that are read there
  bool is_draining_ = false;
  std::string failure_;
  std::vector<LiveEvent> events_;     // scratch of handle_events()
  std::vector<std::uint64_t> dirty_;  // the same
  std::string bytes_;                 // scratch
};

}  // namespace metronome
