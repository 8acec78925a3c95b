// SPDX-License-Identifier: Apache-2.0
#include "system/progress.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fmt/core.h>
#include <iostream>
#include <string_view>
#include <utility>

#include "core/base/command_errors.h"
#include "system/host_signals.h"

namespace metronome {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr auto kLineInterval = std::chrono::seconds(30);
constexpr std::size_t kBarWidth = 30;

volatile std::sig_atomic_t first_signal = 0;
bool is_left_to_host = false;

extern "C" void on_signal(int signal) {
  if (first_signal == 0) first_signal = signal;
}

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// No SA_RESTART: a signal also ends a write to a pipe that nobody reads.
void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

bool is_capable_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(descriptor) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

ProgressBar::ProgressBar(bool is_wanted)
    : is_wanted_(is_wanted),
      is_enabled_(is_wanted && is_capable_terminal(STDERR_FILENO)),
      made_(WallClock::now()),
      started_(made_),
      next_draw_(started_),
      next_line_(started_ + kLineInterval) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::start(std::string label) {
  label_ = std::move(label);
  started_ = WallClock::now();
  next_draw_ = started_ + kRedrawInterval;  // short runs draw nothing
  next_line_ = started_ + kLineInterval;
}

bool ProgressBar::is_due(WallClock::time_point now) const {
  return is_wanted_ && now >= (is_enabled_ ? next_draw_ : next_line_);
}

void ProgressBar::update(std::size_t done, std::size_t total) {
  const auto now = WallClock::now();
  if (!is_due(now)) return;
  const double elapsed_s = std::chrono::duration<double>(now - started_).count();
  show(progress_text(label_, done, total) + remaining_text(elapsed_s, done, total));
}

void ProgressBar::show(const std::string& text) {
  const auto now = WallClock::now();
  if (!is_due(now)) return;
  next_draw_ = now + kRedrawInterval;
  next_line_ = now + kLineInterval;
  std::cerr << (is_enabled_ ? "\r\033[K" + text : text + '\n') << std::flush;
  is_drawn_ = is_enabled_;
}

void ProgressBar::announce(const std::string& text) {
  constexpr auto kShort = std::chrono::seconds(1);
  const auto now = WallClock::now();
  if (!is_enabled_ || now < made_ + kShort) return;
  next_draw_ = now;
  show(text);
}

void ProgressBar::clear() {
  if (!is_drawn_) return;
  std::cerr << "\r\033[K" << std::flush;
  is_drawn_ = false;
}

WorkProgress::WorkProgress(bool is_wanted) : bar_(is_wanted), began_(WallClock::now()) {}

void WorkProgress::show(const std::string& text, double done, double left) {
  const std::chrono::duration<double> elapsed = WallClock::now() - began_;
  bar_.show(done > 0
                ? text + ", about " + clock_text(std::ceil(elapsed.count() / done * left)) + " left"
                : text);
}

std::string clock_text(double seconds) {
  const auto all = static_cast<std::int64_t>(seconds);
  const std::string rest = fmt::format("{:02}:{:02}", all / 60 % 60, all % 60);
  return all < 3600 ? rest : fmt::format("{}:{}", all / 3600, rest);
}

std::string progress_text(const std::string& label, std::size_t done, std::size_t total) {
  return progress_bar_text(label, done, total) + " requests";
}

std::string remaining_text(double elapsed_s, std::size_t done, std::size_t total) {
  constexpr double kLeastElapsed = 2;
  constexpr double kMinute = 60;
  if (elapsed_s < kLeastElapsed || done == 0 || done >= total) return {};
  const double left_s = elapsed_s * static_cast<double>(total - done) / static_cast<double>(done);
  const bool is_long = left_s >= 2 * kMinute;
  const double shown = std::ceil(is_long ? left_s / kMinute : left_s);
  return fmt::format(", {}{} left", static_cast<std::int64_t>(shown), is_long ? " min" : " s");
}

std::string progress_bar_text(const std::string& label, std::size_t done, std::size_t total) {
  const std::size_t all = std::max<std::size_t>(total, 1);
  const std::size_t part = std::min(done, all);
  const std::size_t filled = part * kBarWidth / all;
  return fmt::format("{} [{:.<{}}] {:3}% {}/{}", label, std::string(filled, '#'), kBarWidth,
                     part * 100 / all, done, total);
}

void catch_signals() {
  if (is_left_to_host) return;
  handle(SIGINT, on_signal);
  handle(SIGTERM, on_signal);
  if (!is_ignored(SIGHUP)) handle(SIGHUP, on_signal);
  handle(SIGPIPE, SIG_IGN);
  handle(SIGXFSZ, SIG_IGN);
}

int interrupting_signal() { return first_signal; }

void leave_signals_to_host(bool is_left) { is_left_to_host = is_left; }

void set_interrupting_signal(int signal) { first_signal = signal; }

void throw_if_interrupted() {
  if (first_signal != 0) throw Interrupted();
}

void throw_if_output_failed() {
  if (!std::cout) throw OutputFailed();
}

bool is_reader_gone() {
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

}  // namespace metronome
