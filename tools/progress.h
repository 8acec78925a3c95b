// What a person sees and does while a run goes on: a progress bar, and Ctrl-C.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace metronome {

// One line on standard error that is redrawn a few times a second. Draws nothing unless standard
// error is a terminal.
class ProgressBar {
 public:
  explicit ProgressBar(bool is_wanted);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void start(std::string label);
  void update(std::size_t done, std::size_t total);
  void clear();  // wipes the line

 private:
  using WallClock = std::chrono::steady_clock;

  bool is_enabled_;
  bool is_drawn_ = false;
  std::string label_;
  WallClock::time_point next_draw_;
};

// The text of the bar, without control characters: "label [####....]  50% 200/400 requests".
std::string progress_text(const std::string& label, std::size_t done, std::size_t total);

// From now on Ctrl-C only sets a flag; the third one ends the process at once.
void catch_interrupt();
bool was_interrupted();

}  // namespace metronome
