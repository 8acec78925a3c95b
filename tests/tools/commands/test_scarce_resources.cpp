// SPDX-License-Identifier: Apache-2.0
// Little memory, a small stack, a full disk: one line, and nothing half-written stays.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/command_line.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A prefix: the program runs under limits of the shell.
std::string limited(const std::string& limits) {
  return "bash -c 'ulimit " + limits + "; exec \"$0\" \"$@\"'";
}

struct Workplace {
  Workplace() { scenario = folder.write("s.yaml", kSmallScenario); }

  CommandResult run(const std::string& limits, const std::string& more = "") const {
    return run_metronome("run '" + scenario + "' -q --out '" + folder.path() + "/out' " + more,
                         limited(limits));
  }
  std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder.path()), {}));
  }

  ScratchFolder folder;
  std::string scenario;
};

// `metronome serve` on a free port, in the background.
class ServerProcess {
 public:
  ServerProcess(const std::string& arguments, const std::string& limits,
                const std::string& folder) {
    const std::string command = "ulimit " + limits + "; exec '" + metronome_program() + "' serve " +
                                arguments + " --port 0 >'" + folder + "/serve.out' 2>'" + folder +
                                "/serve.err'";
    process_ = ::fork();
    if (process_ == 0) {
      ::execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    const std::string before = "127.0.0.1:";
    for (int tries = 0; tries < 3000 && port_ == 0; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (!std::filesystem::exists(folder + "/serve.out")) continue;
      const std::string text = read_text_file(folder + "/serve.out");
      const std::size_t at = text.find(before);
      if (at != std::string::npos && text.find('/', at) != std::string::npos) {
        port_ = std::stoi(text.substr(at + before.size()));
      }
    }
  }
  ~ServerProcess() {
    if (process_ > 0) ::kill(process_, SIGKILL), wait();
  }

  int port() const { return port_; }
  int wait() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t process_ = 0;
  int port_ = 0;
};

int connect_to(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  if (::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    return descriptor;
  }
  ::close(descriptor);
  return -1;
}

std::string read_to_end(int descriptor) {
  std::string received;
  char bytes[65536];
  pollfd ready{descriptor, POLLIN, 0};
  while (::poll(&ready, 1, 60'000) == 1) {
    const ssize_t count = ::recv(descriptor, bytes, sizeof bytes, 0);
    if (count <= 0) break;
    received.append(bytes, static_cast<std::size_t>(count));
  }
  return received;
}

// Whether a client knows how its request ended.
bool is_whole(const std::string& answer) {
  if (answer.starts_with("HTTP/1.1 200")) return contains(answer, "data: [DONE]\n\n\r\n0\r\n\r\n");
  return (answer.starts_with("HTTP/1.1 500") || answer.starts_with("HTTP/1.1 503")) &&
         contains(answer, "the engine failed: ");
}

}  // namespace

TEST_CASE("a small stack is a failure in one line", "[cli][scarce]") {
  const Workplace place;
  for (const int kib : {64, 192, 384}) {
    const CommandResult result = place.run("-s " + std::to_string(kib));
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.err == "metronome: error: the stack is limited to " + std::to_string(kib) +
                            " KiB; allowed: at least 512 KiB (ulimit -s)\n");
    CHECK(place.num_files() == 1);
  }
  CHECK(place.run("-s 512").exit_code == 0);
  CHECK(place.run("-S -s 128").exit_code == 0);  // the program may raise it
}

// The sanitizers reserve far more. GCC names them by macros, clang by features.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define METRONOME_RESERVES_MEMORY
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define METRONOME_RESERVES_MEMORY
#endif
#endif

#ifndef METRONOME_RESERVES_MEMORY

TEST_CASE("nothing partial stays where memory ends", "[cli][scarce]") {
  const Workplace place;
  int num_failed = 0;
  for (int kib = 24'000; kib <= 120'000; kib += 8'000) {
    const CommandResult result =
        place.run("-v " + std::to_string(kib), "--set workload.num_requests=40000");
    INFO(kib << ": " << result.err);
    const bool has_result = std::filesystem::exists(place.folder.path() + "/out");
    CHECK(place.num_files() == (has_result ? 2 : 1));
    if (result.exit_code == 127 || result.exit_code == 0) continue;  // 127: not even loaded
    // Loaded to the last byte: the C++ runtime has no memory for an exception.
    if (result.err.starts_with("terminate called without an active exception")) continue;
    CHECK(result.exit_code == 1);
    CHECK(result.err == "metronome: error: out of memory\n");
    ++num_failed;
  }
  CHECK(num_failed > 1);
}

TEST_CASE("the KV cache fits into the limit of the process", "[cli][scarce][cpu]") {
  const CommandResult fits =
      run_metronome("chat tiny-llama --prompt x --max-tokens 1 --set engine.max_model_len=256",
                    limited("-v 1500000"));
  INFO(fits.err);
  CHECK(fits.exit_code == 0);
  const CommandResult named = run_metronome(
      "chat tiny-llama --prompt x --max-tokens 1 --set cpu.kv_cache_gib=4 "
      "--set engine.max_num_seqs=256 --set engine.max_model_len=32768",
      limited("-v 1500000"));
  INFO(named.err);
  CHECK(named.exit_code != 0);
  CHECK(contains(named.err, "cpu.kv_cache_gib"));
  CHECK(std::count(named.err.begin(), named.err.end(), '\n') == 1);
}

#endif

TEST_CASE("a file that cannot grow is a failure in one line", "[cli][scarce]") {
  const Workplace place;
  const CommandResult result = place.run("-f 4");
  INFO(result.err);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, ": cannot write: File too large\n"));
  CHECK(place.num_files() == 1);
}

TEST_CASE("every answer ends when the disk of the record is full", "[cli][serve][scarce]") {
  const ScratchFolder folder;
  const std::string scenario = folder.write("s.yaml", kSmallScenario);
  ServerProcess server("'" + scenario + "' --speed 20 --out '" + folder.path() + "/out'", "-f 48",
                       folder.path());
  REQUIRE(server.port() != 0);
  const std::string stream =
      R"({"prompt": "Hello", "max_tokens": 30, "ignore_eos": true, "stream": true})";
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: "
      "close\r\nContent-Length: " +
      std::to_string(stream.size()) + "\r\n\r\n" + stream;
  std::vector<int> clients;
  for (int i = 0; i < 400; ++i) {
    const int client = connect_to(server.port());
    if (client < 0) break;  // the server has ended
    ::send(client, request.data(), request.size(), MSG_NOSIGNAL);
    clients.push_back(client);
  }
  std::size_t num_whole = 0, num_failed = 0;
  for (const int client : clients) {
    const std::string answer = read_to_end(client);
    ::close(client);
    num_whole += is_whole(answer) ? 1 : 0;
    num_failed += contains(answer, "the engine failed: ") ? 1 : 0;
    if (!is_whole(answer)) UNSCOPED_INFO("answer: " << answer);
  }
  CHECK(num_whole == clients.size());
  CHECK(num_failed > 0);
  CHECK(server.wait() == 1);
  CHECK(contains(read_text_file(folder.path() + "/serve.err"),
                 "out.served.jsonl: cannot write: File too large\n"));
}

}  // namespace TEST_FILE
