// SPDX-License-Identifier: Apache-2.0
// `metronome advise` beside a server: looks at its metrics, follows its log, reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/metrics/slo_config.h"
#include "serve/client/server_probe.h"
#include "serve/client/server_url.h"
#include "study/watch/log_tail.h"
#include "study/watch/watch_report.h"
#include "system/followed_file.h"

namespace metronome {

struct AdviseOptions {
  ServerUrl url;
  std::vector<std::string> headers;
  std::string log;         // "-": standard input; empty: none
  std::string engine;      // of the log; empty: the one whose lines it has
  SloConfig goals;
  bool has_usual_goals = false;
  double interval_s = 10;  // between two looks
  double window_s = 60;    // of the figures
  double timeout_s = 10;   // of an answer
  bool is_once = false;
  std::int64_t most_looks = 0;  // 0: until a signal
  std::string model, gpu;  // of replays, in place of the log's
  std::int32_t num_jobs = 1;
  bool has_no_replay = false;
  std::string prometheus;  // file of the findings; empty: none
  bool wants_json = false;
};

class AdviseSession {
 public:
  // Throws UsageError.
  explicit AdviseSession(AdviseOptions options);

  // One report over an interval. Throws UsageError if neither the metrics nor the log could
  // be read.
  WatchReport look_once();
  // Reports at each look until a signal comes, or as many as wanted. Returns the last one.
  WatchReport watch();

 private:
  bool look();
  void follow();
  void note_change(FileChange change);
  void wait(double seconds);
  void say(const std::string& event);
  WatchReport report();
  void start_search(const WatchReport& report);
  void take_search();
  void add_advice(WatchReport& report);
  void note_lacks(const EngineLog* log, WatchReport& report) const;
  void print(const WatchReport& report);
  void write_metrics(const WatchReport& report);
  std::optional<EngineLog> log_from(std::int64_t line, std::string& why) const;

  AdviseOptions options_;
  std::optional<ServerAddress> address_;
  std::deque<Look> looks_;
  std::deque<std::int64_t> first_lines_;  // of the log behind each look
  std::set<double> starts_;  // of the server, as looks showed them
  bool is_up_ = false;
  std::string problem_;  // with the metrics; empty: there is none
  std::unique_ptr<FollowedFile> file_;
  std::unique_ptr<LogTail> tail_;
  std::string log_problem_;

  std::future<WatchReport> search_;  // that runs beside the looks; not valid: none does
  bool is_last_look_ = false;        // it waits for the search
  // Of the last search, while a goal is broken.
  std::optional<RestartAdvice> advice_;
  std::vector<Cause> searched_causes_;
  std::vector<std::string> search_notes_;
  std::string finding_json_;
  std::optional<double> searched_at_s_;

  std::deque<std::string> events_;  // the last few
  std::string shown_;               // goals, causes and flags of the last whole report
  std::size_t num_drawn_ = 0;       // lines on the terminal
  bool is_terminal_ = false;
};

}  // namespace metronome
