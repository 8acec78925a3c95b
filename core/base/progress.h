// What a person sees and does while a run goes on: a progress bar, Ctrl-C, a closed terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace metronome {

// A terminal that knows colours and cursor movements (TERM=dumb has neither).
bool is_capable_terminal(int descriptor);

// One line on standard error that is redrawn a few times a second. Draws nothing unless standard
// error is a capable terminal.
class ProgressBar {
 public:
  explicit ProgressBar(bool is_wanted);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void start(std::string label);
  void update(std::size_t done, std::size_t total);
  void show(const std::string& text);
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
// The same without the last word.
std::string progress_bar_text(const std::string& label, std::size_t done, std::size_t total);

// From now on SIGINT (Ctrl-C), SIGTERM and SIGHUP only leave a note, and a pipe whose reader has
// gone or a file that may not grow fails the write instead of ending the process: a run that owns a
// half-written folder always gets to remove it. SIGHUP stays ignored where it was (nohup).
void catch_signals();
// The first of these signals that came; 0 if none did.
int interrupting_signal();
// Throws Interrupted when one came.
void throw_if_interrupted();
// Throws OutputFailed when standard output has failed.
void throw_if_output_failed();
// Whether standard output is a pipe whose reader has gone (`| head`): nothing to complain about.
bool is_reader_gone();

}  // namespace metronome
