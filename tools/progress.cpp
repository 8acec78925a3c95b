#include "tools/progress.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <utility>

#include "tools/cli.h"

namespace metronome {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr std::size_t kBarWidth = 30;

// The run ends in order, without results, at the first Ctrl-C; who insists ends it at once.
constexpr int kInterruptsToExit = 3;

volatile std::sig_atomic_t num_interrupts = 0;

extern "C" void on_interrupt(int) {
  num_interrupts = num_interrupts + 1;
  if (num_interrupts >= kInterruptsToExit) _exit(kExitInterrupted);
}

}  // namespace

ProgressBar::ProgressBar(bool is_wanted)
    : is_enabled_(is_wanted && isatty(STDERR_FILENO) == 1), next_draw_(WallClock::now()) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::start(std::string label) {
  label_ = std::move(label);
  next_draw_ = WallClock::now() + kRedrawInterval;  // short runs draw nothing at all
}

void ProgressBar::update(std::size_t done, std::size_t total) {
  if (!is_enabled_) return;
  const auto now = WallClock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kRedrawInterval;
  std::cerr << "\r\033[K" << progress_text(label_, done, total) << std::flush;
  is_drawn_ = true;
}

void ProgressBar::clear() {
  if (!is_drawn_) return;
  std::cerr << "\r\033[K" << std::flush;
  is_drawn_ = false;
}

std::string progress_text(const std::string& label, std::size_t done, std::size_t total) {
  const std::size_t all = std::max<std::size_t>(total, 1);
  const std::size_t part = std::min(done, all);
  const std::size_t filled = part * kBarWidth / all;
  const std::string percent = std::to_string(part * 100 / all);
  return label + " [" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] " +
         std::string(3 - percent.size(), ' ') + percent + "% " + std::to_string(done) + "/" +
         std::to_string(total) + " requests";
}

void catch_interrupt() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

bool was_interrupted() { return num_interrupts != 0; }

}  // namespace metronome
