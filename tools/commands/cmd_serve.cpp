// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <exception>
#include <filesystem>
#include <fmt/core.h>
#include <iostream>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/base/clip.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "reports/terminal/text.h"
#include "serve/client/load_client.h"
#include "serve/server/engine_thread.h"
#include "serve/server/http_server.h"
#include "serve/server/served_record.h"
#include "serve/server/service.h"
#include "study/run/variant_run.h"
#include "study/run/wall_clock.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/local_model.h"
#include "tools/commands/run_choice.h"
#include "tools/commands/server_host.h"

namespace metronome {
namespace {

struct ServeOptions {
  std::string scenario;
  std::vector<std::string> assignments;
  LocalModelChoice choice;
  std::string host = "127.0.0.1";
  int port = 8000;
  double speed = 1;
  std::string out;
  std::int64_t max_record_bytes = std::int64_t{2} << 30;
  std::int64_t max_waiting = 2048;
  double drain_s = 30;
  std::int64_t max_body_bytes = 8 * 1024 * 1024;
  std::int64_t max_unread_bytes = 64 * 1024;
  std::int64_t max_held_bytes = 0;  // 0: by default
  std::int64_t max_client_requests = 1024;
  std::int64_t max_client_tokens = 16 << 20;
  std::int64_t max_unsent_bytes = 256 << 20;
  HttpLimits limits;
  AccessRules access;
  std::string allowed_hosts, allowed_origins;
  std::string certificate_file, key_file;
  bool is_quiet = false;
};

constexpr const char* kServeExamples =
    "examples:\n"
    "  metronome serve scenarios/quickstart.yaml --variant chunked-512\n"
    "  metronome serve scenarios/engines.yaml --variant vllm --speed 10 --port 9000\n"
    "  metronome serve scenarios/quickstart.yaml --variant chunked-512 --tokenizer "
    "Llama-3.2-3B/tokenizer.json\n"
    "  metronome serve scenarios/quickstart.yaml --variant chunked-512 --backend=cuda "
    "\\\n"
    "      --set model=models/Llama-3.2-3B\n"
    "\n"
    "  curl -N localhost:8000/v1/completions -d '{\"prompt\": \"Hello\", \"stream\": true}'\n"
    "\n"
    "exit codes: 0 stopped by a signal or a full record, 1 the engine failed, 2 bad input\n";

constexpr CommandText kServeText = {
    .name = "serve",
    .arguments = "SCENARIO [OPTION...]",
    .summary =
        "Serves the model of a scenario, with its engine and scheduler, over an\n"
        "OpenAI-compatible HTTP API. In a simulation, steps take the time that the cost model\n"
        "predicts, and answers are plausible text; --backend=cpu and cuda compute the answers.\n"
        "The first signal (Ctrl-C) lets running requests end; a second one aborts them.\n",
    .examples = kServeExamples,
    .file_name = "SCENARIO",
    .file_kind = "scenario file"};

constexpr WholeRange kCounts = {1, std::int64_t{1} << 40};  // of requests, tokens or bytes

OptionList option_list(ServeOptions& options) {
  return {
      {"set KEY=VALUE", &options.assignments,
       "override a key (see `metronome list keys`); repeatable"},
      {"variant NAME", &options.choice.variant,
       "the variant to serve; required if the scenario has several"},
      {"backend NAME", &options.choice.backend, "sim (the default), cpu or cuda"},
      {"host ADDRESS", &options.host, "address to listen on (default: 127.0.0.1; 0.0.0.0: all)"},
      {"port N", &options.port, "port to listen on (default: 8000; 0: any)", EmptyText::Refused,
       WholeRange{0, 65535}},
      {"api-key KEY", &options.access.api_key,
       "clients must send this key; needed when others reach the server (default: none)"},
      {"allowed-hosts LIST", &options.allowed_hosts,
       "names of the server for clients, in addition to addresses, localhost and the machine's "
       "name; with "
       "commas between; *.NAME: all below NAME; *: all"},
      {"allowed-origins LIST", &options.allowed_origins,
       "origins of web pages that may call the server, such as https://chat.example (default: "
       "none); with commas between; *: all"},
      {"ssl-certfile FILE", &options.certificate_file,
       "serve HTTPS with this certificate, followed by those of its issuers (PEM)"},
      {"ssl-keyfile FILE", &options.key_file, "the key of --ssl-certfile (PEM)"},
      {"speed X", &options.speed, "simulated time runs X times as fast as real time (default: 1)",
       EmptyText::Refused, RealRange{0.001, 1e6}},
      {"model-name NAME", &options.choice.model_name,
       "name of the model for clients (default: as in the scenario)"},
      {"tokenizer FILE", &options.choice.tokenizer,
       "a tokenizer.json or GGUF file (default: that of the model, else one token per byte)"},
      {"chat-template FILE", &options.choice.chat_template,
       "a Jinja template that writes conversations as prompts (default: that of the model, else "
       "that of the tokenizer's family)"},
      {"generation-config SOURCE", &options.choice.generation_config,
       "sampling defaults: of the model's generation_config.json (auto, the default), none "
       "(vllm), or of the file in a folder"},
      {"out DIR", &options.out,
       "record the served requests as they end, in DIR.served.jsonl; at the end write results as "
       "`metronome run` does, with the requests as trace.jsonl"},
      {"max-record-bytes N", &options.max_record_bytes,
       "when the record of --out has taken N bytes, in memory and in DIR.served.jsonl, the server "
       "ends as after a signal (default: 2147483648)"},
      {"max-waiting N", &options.max_waiting,
       "most requests that wait for admission; others get HTTP 503 (default: 2048)"},
      {"max-connections N", &options.limits.max_connections,
       "most open connections (default: 4096)"},
      {"max-client-connections N", &options.limits.max_client_connections,
       "most open connections of one address (default: 2048)"},
      {"max-client-requests N", &options.max_client_requests,
       "most answers that one address waits for; others get HTTP 429 (default: 1024)"},
      {"max-client-tokens N", &options.max_client_tokens,
       "most prompt tokens of the answers that one address waits for; others get HTTP 429; one "
       "request may have more (default: 16777216)"},
      {"max-body-bytes N", &options.max_body_bytes, "largest body of a request (default: 8388608)"},
      {"max-held-bytes N", &options.max_held_bytes,
       "most bytes of bodies and answers that wait; one address has half of it (default: 67108864, "
       "at least four bodies)"},
      {"max-unread-bytes N", &options.max_unread_bytes,
       "most bytes of a stream that wait for a slow reader; its other tokens wait before they "
       "are written (default: 65536)"},
      {"max-unsent-bytes N", &options.max_unsent_bytes,
       "most bytes of buffers of tokens that answers have not sent yet; one address has half of "
       "it; beyond that the server ends the largest answer (default: 268435456)"},
      {"drain-seconds S", &options.drain_s,
       "time limit of running requests after a signal (default: 30)", EmptyText::Refused,
       RealRange{0, 1e6}},
      {"quiet,q", &options.is_quiet, "print only errors"},
  };
}

OptionList with_ranges(OptionList list) {
  for (CommandOption& option : list) {
    if (option.syntax.starts_with("max-")) option.range = kCounts;
  }
  return list;
}

void check(const ServeOptions& options) {
  check_backend(options.choice.backend);
  if (options.speed != 1 && options.choice.backend != "sim") {
    throw UsageError("--speed: only simulated time can run faster; allowed: 1 with --backend=" +
                     options.choice.backend);
  }
}

// The entries of a list with commas between. `fault` says what is wrong with one.
std::vector<std::string> entries_of(const char* option, std::string_view list,
                                    std::string (*fault)(std::string_view)) {
  const std::string name(option);
  std::vector<std::string> entries;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    if (entry.empty()) throw UsageError(name + ": has an empty entry; allowed: NAME,NAME,...");
    const std::string wrong = fault(entry);
    if (!wrong.empty()) throw UsageError(name + ": '" + clipped(entry) + "' " + wrong);
    entries.emplace_back(entry);
  }
  return entries;
}

// The name is sent in JSON and in metrics, and is part of a path.
void check_model_name(const std::string& name) {
  constexpr std::size_t kMost = 256;
  if (name.size() <= kMost && printable(name) == name) return;
  throw UsageError("--model-name: '" + clipped(name) +
                   "' is no name that clients can send; allowed: up to 256 bytes of UTF-8 "
                   "without control characters");
}

// Whether other machines may reach an address of this one.
bool is_beyond_loopback(const std::string& host) {
  return !(host == "localhost" || host == "::1" || host.starts_with("127."));
}

// From the first signal, or a record that is full, to the end of the server.
class Shutdown {
  using Steady = std::chrono::steady_clock;

 public:
  Shutdown(Service& service, HttpServer& server, LiveEngine& engine, ServeClock& clock,
           double drain_s)
      : service_(service), server_(server), engine_(engine), clock_(clock), drain_s_(drain_s) {}

  // A signal, or a call of the host.
  void on_stop() {
    if (!begin()) end(true);
  }
  // Lets running requests end, and the server then. False if it has begun before.
  bool begin() {
    if (is_draining_) return false;
    is_draining_ = true;
    deadline_ = Steady::now() + std::chrono::duration_cast<Steady::duration>(
                                    std::chrono::duration<double>(drain_s_));
    service_.drain();
    server_.stop_accepting();
    return true;
  }
  // `num_stops`: calls of the host since the last tick.
  void on_tick(int num_stops) {
    for (int i = 0; i < num_stops; ++i) on_stop();
    if (!is_draining_) return;
    const Steady::time_point now = Steady::now();
    if (refuses_until_ && now >= *refuses_until_) {
      refuses_until_.reset();
      server_.stop_accepting();
    }
    const bool is_done = !refuses_until_ && service_.is_idle() && !server_.has_connections();
    if (is_done || now >= deadline_) end(!is_done);
  }
  // Every answer ends with the error. So do those to requests that are still on their way: to
  // close at once would reset their connections.
  void on_engine_error(const std::string& error) {
    constexpr std::chrono::seconds kRefusing(2), kWriting(10);
    service_.fail("the engine failed: " + error);
    if (std::exchange(has_failed_, true)) return;
    is_draining_ = true;
    refuses_until_ = Steady::now() + kRefusing;
    deadline_ = *refuses_until_ + kWriting;
  }

 private:
  // With `at_once`, a simulated step ends without a wait. The engine then takes the aborts, so that
  // the record has the ends of all requests.
  void end(bool at_once) {
    if (is_over_) return;
    is_over_ = true;
    service_.drain();
    service_.abort_all();
    engine_.close();
    if (at_once) clock_.hurry();
    server_.stop();
  }

  Service& service_;
  HttpServer& server_;
  LiveEngine& engine_;
  ServeClock& clock_;
  double drain_s_;
  bool is_draining_ = false;
  bool is_over_ = false;
  bool has_failed_ = false;                          // the engine, or its record
  std::optional<Steady::time_point> refuses_until_;  // new connections are accepted, and told
  Steady::time_point deadline_;
};

// With --quiet, only the warnings.
void print_header(const ServeOptions& options, const LocalModel& local, std::uint16_t port) {
  if (options.is_quiet) {
    for (const std::string& warning : local.warnings()) {
      std::cerr << "warning: " << printable(warning) << '\n';
    }
    return;
  }
  local.print_header(options.speed);
  const bool is_ipv6 = options.host.find(':') != std::string::npos;
  say("serving",
      fmt::format("{}{}:{}/v1", options.certificate_file.empty() ? "http://" : "https://",
                  is_ipv6 ? "[" + options.host + "]" : options.host, port));
  std::cout << std::flush;
}

std::uint64_t random_salt() {
  std::random_device bits;
  return std::uint64_t{bits()} << 32 | bits();
}

// No client may take the last descriptor: then nobody could connect.
HttpLimits fitting_limits(HttpLimits limits) {
  constexpr std::int64_t kOtherFiles = 64;  // models, records, and room to refuse a connection
  const std::int64_t num_files = raise_open_file_limit();
  const std::int64_t most = std::max<std::int64_t>(num_files - kOtherFiles, 1);
  if (limits.max_connections <= most) return limits;
  std::cerr << "warning: the process may open " << num_files << " files, so that it takes " << most
            << " connections and not " << limits.max_connections
            << ", at most half of them from one address; raise `ulimit -Hn`\n";
  limits.max_connections = most;
  limits.max_client_connections =
      std::min(limits.max_client_connections, std::max<std::int64_t>(most / 2, 1));
  return limits;
}

// `host`: null for the command, which signals end.
int serve(const ServeOptions& options, ServerHost* host) {
  LocalModel local(options.scenario, options.assignments, options.choice);
  PreparedRun& run = local.run();
  const ServedModel& model = local.served();
  HttpServer server(fitting_limits(options.limits), options.access);
  std::optional<ServedRecord> record;  // its thread posts to the server
  if (!options.out.empty())
    record.emplace(options.out, local.backend(), local.variant(), date_text());
  if (!options.certificate_file.empty()) server.use_tls(options.certificate_file, options.key_file);
  server.listen(options.host, static_cast<std::uint16_t>(options.port));
  run.load([] {});

  ServeClock clock = local.is_simulated() ? ServeClock(options.speed) : ServeClock();
  const PlausibleText text(*model.tokenizer);
  Service* events_to = nullptr;
  std::function<std::int64_t()> num_recorded;
  if (record) num_recorded = [&] { return record->journal().num_durable(); };
  LiveEngine engine(run, clock, text, options.max_waiting,
                    [&] { server.post([&] { events_to->handle_events(); }); });
  Service service(
      model, engine, clock, run.setup.kv_cache,
      {.version = METRONOME_VERSION,
       .id_salt = random_salt(),
       .max_client_requests = options.max_client_requests,
       .max_client_tokens = options.max_client_tokens,
       .max_unsent_bytes = static_cast<std::size_t>(options.max_unsent_bytes),
       .max_body_bytes = options.limits.max_held_bytes / 2,
       .num_drafts = run.setup.scheduler.drafts.num_tokens,
       .num_recorded = num_recorded},
      [&](Work work) { server.post_background(std::move(work)); },
      [&](Service::Task task) { server.post(std::move(task)); });
  events_to = &service;
  Shutdown shutdown(service, server, engine, clock, options.drain_s);
  if (host == nullptr) server.keep_signals();
  if (options.access.api_key.empty() && is_beyond_loopback(options.host)) {
    std::cerr << "warning: " << printable(options.host)
              << " is reached from other machines, and everybody may use the server; --api-key "
                 "asks for a key\n";
  }
  print_header(options, local, server.port());
  if (host != nullptr) host->on_ready(server.port());
  std::vector<EventSink*> sinks;
  if (record) {
    sinks = record->sinks(engine);
    record->journal().on_durable([&] { server.post([&] { events_to->handle_events(); }); });
  }
  EngineThread thread(engine, clock, sinks, [&](const std::string& error) {
    server.post([&, error] { shutdown.on_engine_error(error); });
  });
  const auto on_tick = [&] {
    const std::string unrecorded = record ? record->journal().sync_error() : std::string();
    if (!unrecorded.empty()) shutdown.on_engine_error(unrecorded);
    const bool is_full = record && record->num_bytes() >= options.max_record_bytes;
    if (is_full && shutdown.begin()) {
      std::cerr << "warning: the record has reached --max-record-bytes " << options.max_record_bytes
                << ": the server takes no more requests, and ends\n";
    }
    shutdown.on_tick(host == nullptr ? 0 : host->take_stops());
  };
  server.run(
      service, [&](int) { shutdown.on_stop(); }, on_tick);
  if (const std::string& error = thread.join(); !error.empty()) {
    throw std::runtime_error("the engine failed: " + printable(error));
  }
  if (record) {
    record->write();
    if (!options.is_quiet) std::cout << "results: " << printable(options.out) << '\n';
  }
  return kExitDone;
}

int serve(const Arguments& arguments, ServerHost* host) {
  ServeOptions options;
  const auto line = parse_command(kServeText, with_ranges(option_list(options)), arguments);
  if (!line) return kExitDone;
  options.scenario = line->file();
  if (line->has("max-record-bytes") && options.out.empty()) {
    throw UsageError("--max-record-bytes: there is no record; allowed: with --out");
  }
  check(options);
  options.limits.max_body_bytes = static_cast<std::size_t>(options.max_body_bytes);
  options.limits.max_unread_bytes = static_cast<std::size_t>(options.max_unread_bytes);
  options.limits.max_held_bytes =
      options.max_held_bytes != 0
          ? static_cast<std::size_t>(options.max_held_bytes)
          : std::max(options.limits.max_held_bytes, 4 * options.limits.max_body_bytes);
  if (options.certificate_file.empty() != options.key_file.empty()) {
    throw UsageError(
        "--ssl-certfile: needs --ssl-keyfile, and the other way round; allowed: both, "
        "or none");
  }
  check_model_name(options.choice.model_name);
  if (const std::string wrong = key_fault(options.access.api_key); !wrong.empty()) {
    throw UsageError("--api-key: " + wrong);
  }
  options.access.allowed_hosts = entries_of("--allowed-hosts", options.allowed_hosts, host_fault);
  options.access.allowed_origins =
      entries_of("--allowed-origins", options.allowed_origins, origin_fault);
  options.access.listens_on = options.host;
  return serve(options, host);
}

}  // namespace

int serve_command(const Arguments& arguments) { return serve(arguments, nullptr); }

int serve_command(const Arguments& arguments, ServerHost& host) { return serve(arguments, &host); }

}  // namespace metronome
