// SPDX-License-Identifier: Apache-2.0
// `metronome advise` beside servers: one that is simulated, and scripted ones, some hostile.
#include <atomic>
#include <cstdlib>
#include <fmt/core.h>
#include <sstream>
#include <string>
#include <thread>

#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"
#include "tests/serve/client/scripted_server.h"
#include "tests/serve/server/http_lab.h"
#include "tests/shared_data.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;
using Peer = ScriptedServer::Peer;

std::string page_of(int waiting, int num_tokens, int num_late, double started = 1) {
  return fmt::format(
      "process_start_time_seconds {}\n"
      "vllm:num_requests_running{{engine=\"0\",model_name=\"m\"}} 4\n"
      "vllm:num_requests_waiting{{engine=\"0\",model_name=\"m\"}} {}\n"
      "vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"m\"}} 0.5\n"
      "vllm:generation_tokens_total{{engine=\"0\",model_name=\"m\"}} {}\n"
      "vllm:inter_token_latency_seconds_bucket{{engine=\"0\",le=\"0.1\",model_name=\"m\"}} {}\n"
      "vllm:inter_token_latency_seconds_bucket{{engine=\"0\",le=\"0.5\",model_name=\"m\"}} {}\n"
      "vllm:inter_token_latency_seconds_bucket{{engine=\"0\",le=\"+Inf\",model_name=\"m\"}} {}\n",
      started, waiting, num_tokens, num_tokens - num_late, num_tokens, num_tokens);
}

// A server whose n-th page is of n seconds of load.
ScriptedServer::Script pages(int num_late) {
  return [num_late](std::size_t n, const std::string&, const std::string&, Peer& peer) {
    const int number = static_cast<int>(n);
    peer.send(plain_answer(200, page_of(0, 100 * number, num_late * number)));
    peer.hang_up();
  };
}

CommandResult advise(const std::string& url, const std::string& options) {
  return run_metronome("advise " + url + " " + options);
}

// The only line of an error.
void check_error(const CommandResult& result, const std::string& part) {
  INFO(result.out << result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK(contains(result.err, part));
}

std::optional<std::string> unpacked(const std::string& path, const std::string& file) {
  const auto packed = shared_path(path);
  if (!packed) return std::nullopt;
  REQUIRE(std::system(("xz -dc '" + *packed + "' > '" + file + "'").c_str()) == 0);
  return read_text_file(file);
}

}  // namespace

TEST_CASE("one look says load and goals, and its exit code whether one is broken", "[advise]") {
  const ScriptedServer server(pages(5));
  const CommandResult broken =
      advise(server.url(), "--once --interval 0.2 --target-itl 100 --target-itl-share 0.99 --json");
  INFO(broken.err);
  CHECK(broken.exit_code == 3);
  const Json report = Json::parse(broken.out);
  CHECK(report.at("model").string() == "m");
  CHECK(report.at("window").at("running").get<double>() == 4);
  CHECK(report.at("goals").at(0).at("state").string() == "broken");
  CHECK(report.at("advice").is_null());
  CHECK(contains(broken.out, "give the server's log with --log"));
  const CommandResult kept =
      advise(server.url(), "--once --interval 0.2 --target-itl 100 --target-itl-share 0.9");
  INFO(kept.out << kept.err);
  CHECK(kept.exit_code == 0);
  CHECK(contains(kept.out, "kept: 90 % of the gaps within 100 ms"));
  const CommandResult usual = advise(server.url(), "--once --interval 0.2");
  CHECK(usual.exit_code == 0);
  CHECK(contains(usual.out, "undecided: 99 % of the gaps within 200 ms"));
  CHECK(contains(usual.out, "unknown: the p99 TTFT within 2,000 ms"));
}

TEST_CASE("an endpoint that is broken or hostile is one line", "[advise]") {
  const auto check = [](const ScriptedServer::Script& script, const std::string& part) {
    const ScriptedServer server(script);
    check_error(advise(server.url(), "--once --interval 0.2 --timeout 1"), part);
  };
  const auto answers = [](const std::string& answer) {
    return [answer](std::size_t, const std::string&, const std::string&, Peer& peer) {
      peer.send(answer);
      peer.hang_up();
    };
  };
  check(answers(plain_answer(500, "{}")), "/metrics: answers with status 500");
  check(answers(plain_answer(404, "Not Found")), "/metrics: answers with status 404");
  check(answers(plain_answer(200, "<html>\n<p>Hello</p>\n</html>")),
        "/metrics: is no page of metrics (application/json)");
  check(answers(plain_answer(200, "up 1\n")), "/metrics: has metrics, but none of vLLM, SGLang");
  check(answers("SSH-2.0-OpenSSH_9.2\r\n"), "/metrics: ");
  check(answers(std::string("\x15\x03\x01\x00\x02\x02\x16", 7)), "/metrics: ");  // TLS refuses
  check(answers("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"), "body limit");
  check(answers(""), "/metrics: end of stream");
  const auto endless = [](std::size_t, const std::string&, const std::string&, Peer& peer) {
    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string line = chunk_of(std::string(65536, '#'));
    while (peer.is_open()) peer.send(line);
  };
  check(endless, "body limit");
  const auto slow = [](std::size_t, const std::string&, const std::string&, Peer& peer) {
    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    while (peer.is_open()) {
      peer.send(chunk_of("x"));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  };
  check(slow, "no answer in time");
  std::uint16_t port = 0;
  { port = ScriptedServer(pages(0)).port(); }  // nobody listens there now
  check_error(advise(fmt::format("http://127.0.0.1:{}", port), "--once --interval 0.2"),
              "cannot connect");
  check_error(advise("https://127.0.0.1", "--once"), "needs TLS");
}

TEST_CASE("a redirection to the page with a slash is followed", "[advise]") {
  const ScriptedServer server(
      [](std::size_t n, const std::string& head, const std::string&, Peer& peer) {
        const bool has_slash = head.starts_with("GET /metrics/ ");
        peer.send(has_slash ? plain_answer(200, page_of(0, static_cast<int>(100 * n), 0))
                            : plain_answer(307, "", "Location: /metrics/\r\n"));
        peer.hang_up();
      });
  CHECK(advise(server.url(), "--once --interval 0.2").exit_code == 0);
}

TEST_CASE("it goes on beside a server that fails and starts again", "[advise]") {
  const ScriptedServer server(
      [](std::size_t n, const std::string&, const std::string&, Peer& peer) {
        const int number = static_cast<int>(n);
        if (n == 2 || n == 3) {
          peer.send(plain_answer(503, "{}"));
        } else {
          const int since = n < 4 ? number : number - 4;
          peer.send(plain_answer(200, page_of(9 * number, 100 * since, 0, n < 4 ? 1 : 2)));
        }
        peer.hang_up();
      });
  const CommandResult result = advise(server.url(), "--interval 0.2 --looks 6");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 3);
  CHECK(contains(result.err, "answers with status 503"));
  CHECK(contains(result.err, "the server started again"));
  CHECK(contains(result.err, "can be read again"));
  CHECK(contains(result.out, "wait 9"));
  CHECK(contains(result.out, "queue: "));
  const CommandResult lines = advise(server.url(), "--interval 0.2 --looks 2 --json");
  CHECK(std::count(lines.out.begin(), lines.out.end(), '\n') == 2);
}

TEST_CASE("findings are metrics in a file of their own", "[advise]") {
  const ScriptedServer server(pages(5));
  const ScratchFolder scratch;
  const std::string file = scratch.path() + "/advise.prom";
  const std::string options = "--once --interval 0.2 --target-itl 100 --prometheus '" + file + "'";
  CHECK(advise(server.url(), options).exit_code == 3);
  const std::string text = read_text_file(file);
  CHECK(contains(text, "metronome_advise_goal_broken{server=\"" + server.url() +
                           "\",goal=\"slo.itl_ms\"} 1\n"));
  CHECK(contains(text, "metronome_advise_up{server=\"" + server.url() + "\"} 1\n"));
  CHECK(advise(server.url(), options).exit_code == 3);  // its own file
  scratch.write("advise.prom", "other_metric 1\n");
  check_error(advise(server.url(), options), "exists and is not of this command");
  CHECK(folder_content(scratch.path()).size() == 1);
}

TEST_CASE("options that contradict each other are refused", "[advise]") {
  check_error(run_metronome("advise http://h:1 --jobs 2"), "--jobs: has no effect");
  check_error(run_metronome("advise http://h:1 --once --looks 2"), "--looks: contradicts --once");
  check_error(run_metronome("advise http://h:1 --engine x"), "allowed: vllm");
  check_error(run_metronome("advise http://h:1 --target-itl-share 0.9"), "--target-itl-share");
  check_error(run_metronome("advise http://h:1 --log /none.log"), "/none.log does not exist");
  check_error(run_metronome("advise http://h:1 --target-cost 3"), "--target-cost");
  check_error(run_metronome("advise"), "no");
}

TEST_CASE("a log beside the metrics gives cause, flags, price and the restart", "[advise]") {
  const ScratchFolder scratch;
  const std::string log = scratch.path() + "/server.log";
  const auto text = unpacked("data/real_vllm/A2048/server.log.xz", log);
  const auto before =
      unpacked("data/real_vllm/A2048/metrics_before.txt.xz", scratch.path() + "/before");
  const auto after =
      unpacked("data/real_vllm/A2048/metrics_after.txt.xz", scratch.path() + "/after");
  if (!text || !before || !after) return;
  const ScriptedServer server(
      [&](std::size_t n, const std::string&, const std::string&, Peer& peer) {
        peer.send(plain_answer(200, n == 0 ? *before : *after));
        peer.hang_up();
      });
  const CommandResult result =
      advise(server.url(), "--once --interval 0.2 --target-itl 400 --json --log '" + log + "'");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 3);
  const Json report = Json::parse(result.out);
  CHECK(report.at("causes").at(0).at("cause").string() == "prefill");
  const Json& advice = report.at("advice");
  CHECK(advice.at("flags").string().starts_with("--max-num-batched-tokens "));
  CHECK(contains(advice.at("change").string(), "so the limit is between"));
  CHECK(contains(advice.at("price").string(), "TTFT p50"));
  CHECK(contains(advice.at("command").string(), "vllm serve hf "));
  CHECK(contains(advice.at("command").string(), " --port 8123"));
  CHECK(contains(advice.at("command").string(), advice.at("flags").string()));
  CHECK(report.at("diagnosis").at("what_if").at("change").is_object());
  // The log alone, from standard input, as the server does not answer.
  const CommandResult piped = run_program(
      "/bin/sh", "-c \"cat '" + log + "' | '" + metronome_program() +
                     "' advise http://127.0.0.1:1 --once --interval 0.2 --target-itl 400 --log - "
                     "--json\"");
  INFO(piped.err);
  CHECK(piped.exit_code == 3);
  CHECK(contains(piped.out, "--max-num-batched-tokens"));
  CHECK(contains(piped.out, "The metrics could not be read: http://127.0.0.1:1"));
  // No goal is broken: nothing is searched.
  const CommandResult quiet =
      advise(server.url(), "--once --interval 0.2 --target-itl 5000 --json --log '" + log + "'");
  CHECK(quiet.exit_code == 0);
  CHECK(Json::parse(quiet.out).at("advice").is_null());
}

TEST_CASE("a log without steps is for diagnose", "[advise]") {
  const ScratchFolder scratch;
  const ScriptedServer server(pages(50));
  std::istringstream all(read_text_file(source_dir() + "/tests/expected/logs/vllm.log"));
  std::string reports;
  for (std::string line; std::getline(all, line);) {
    if (!contains(line, "Iteration(")) reports += line + "\n";
  }
  const std::string vllm = scratch.write("reports.log", reports);
  const std::string sglang = source_dir() + "/tests/expected/logs/sglang.log";
  for (const std::string& log : {vllm, sglang}) {
    const CommandResult result =
        advise(server.url(), "--once --interval 0.2 --target-itl 50 --json --log '" + log + "'");
    INFO(result.out << result.err);
    CHECK(contains(result.out, "`metronome diagnose " + log + "` tries them with requests"));
    CHECK(!contains(result.out, "no flag can be advised"));
    CHECK(contains(result.out, "--enable-logging-iteration-details") == (log == vllm));
  }
}

TEST_CASE("beside the server of `metronome serve` it sees the load", "[advise][serve]") {
  HttpBench bench({}, 1);
  const std::string url = fmt::format("http://127.0.0.1:{}", bench.server.port());
  const CommandResult idle = advise(url, "--once --interval 0.2");
  INFO(idle.out << idle.err);
  CHECK(idle.exit_code == 0);
  CHECK(contains(idle.out, "0 running, 0 waiting"));
  std::vector<std::unique_ptr<Wire>> clients;
  for (int i = 0; i < 20; ++i) {  // eight may run
    clients.push_back(std::make_unique<Wire>(bench));
    clients.back()->send(completion(R"("max_tokens": 90000)"));
  }
  REQUIRE(bench.wait_until([&] { return bench.service->metrics().num_running == 8; }));
  const CommandResult busy = advise(url, "--once --interval 2.5 --json");
  INFO(busy.out << busy.err);
  const Json report = Json::parse(busy.out);
  CHECK(report.at("window").at("running").get<double>() == 8);
  CHECK(report.at("window").at("waiting").get<double>() == 12);
  CHECK(report.at("causes").at(0).at("cause").string() == "queue");
  CHECK(report.at("window").at("itl_ms").at("count").get<double>() > 0);
  clients.clear();
  CHECK(bench.wait_idle());
}

// Looks are short here, and there are two; all else is as the page has it.
TEST_CASE("the commands of the page about advise run", "[advise]") {
  const ScratchFolder scratch;
  const std::string log =
      scratch.write("server.log", read_text_file(source_dir() + "/tests/expected/logs/vllm.log"));
  const auto replace = [](std::string& text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    if (at != std::string::npos) text.replace(at, from.size(), to);
  };
  std::istringstream page(read_text_file(source_dir() + "/docs/guide/advise.md"));
  int num_run = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("    metronome advise http://localhost:8000")) continue;
    const ScriptedServer server(pages(5));
    std::string words = line.substr(std::string("    metronome ").size());
    words = words.substr(0, words.find(" > "));
    replace(words, "http://localhost:8000", server.url());
    replace(words, "server.log", "'" + log + "'");
    replace(words, "/var/lib/node_exporter", scratch.path());
    words += " --interval 0.2";
    if (!contains(words, "--once")) words += " --looks 2";
    const CommandResult result = run_metronome(words);
    INFO(words << "\n" << result.out << result.err);
    CHECK((result.exit_code == 0 || result.exit_code == 3));
    CHECK(!result.out.empty());
    ++num_run;
  }
  CHECK(num_run >= 4);
}

}  // namespace metronome::TEST_FILE
