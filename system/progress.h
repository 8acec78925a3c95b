// SPDX-License-Identifier: Apache-2.0
// User interaction during a run: a progress bar, Ctrl-C, a closed terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace metronome {

// Whether the terminal supports colours and cursor movements (TERM=dumb supports neither).
bool is_capable_terminal(int descriptor);

// One line on standard error, redrawn a few times per second, with the remaining time once there is
// some to tell. Where standard error is not a capable terminal, a long wait gets a line of its own
// every half minute.
class ProgressBar {
 public:
  explicit ProgressBar(bool is_wanted);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void start(std::string label);
  void update(std::size_t done, std::size_t total);
  void show(const std::string& text);  // with what the caller knows of the remaining time
  // Shows a text at once, in a terminal, before work without updates. Not in the first second.
  void announce(const std::string& text);
  void clear();  // wipes the line

 private:
  using WallClock = std::chrono::steady_clock;

  bool is_due(WallClock::time_point now) const;

  bool is_wanted_;
  bool is_enabled_;
  bool is_drawn_ = false;
  std::string label_;
  WallClock::time_point made_;
  WallClock::time_point started_;
  WallClock::time_point next_draw_;
  WallClock::time_point next_line_;
};

// A ProgressBar of work whose parts differ in size.
class WorkProgress {
 public:
  explicit WorkProgress(bool is_wanted);

  // `done` and `left` are amounts of work, of which the rest takes as long as what is done did.
  void show(const std::string& text, double done, double left);
  void clear() { bar_.clear(); }

 private:
  using WallClock = std::chrono::steady_clock;

  ProgressBar bar_;
  WallClock::time_point began_;
};

// "12:05" or "1:02:05".
std::string clock_text(double seconds);

// The text of the bar, without control characters: "label [####....]  50% 200/400 requests".
std::string progress_text(const std::string& label, std::size_t done, std::size_t total);
// ", 12 s left", ", 3 min left": how long the rest takes at the speed so far. Empty in the first
// two seconds and where nothing is done.
std::string remaining_text(double elapsed_s, std::size_t done, std::size_t total);
// The text of progress_text() without the unit at the end.
std::string progress_bar_text(const std::string& label, std::size_t done, std::size_t total);

// After this call SIGINT (Ctrl-C), SIGTERM and SIGHUP are only recorded. A write to a pipe without
// a reader, or beyond the file size limit, fails instead of ending the process. So a run can always
// remove its half-written folder. An ignored SIGHUP stays ignored (nohup).
void catch_signals();
// The first of these signals received; 0 if none.
int interrupting_signal();
// Throws Interrupted when a signal was received.
void throw_if_interrupted();
// Throws OutputFailed when standard output has failed.
void throw_if_output_failed();
// Whether standard output is a pipe whose reader has closed it (`| head`), which is no error.
bool is_reader_gone();

}  // namespace metronome
