// SPDX-License-Identifier: Apache-2.0
#include "study/sweep/sweep_run.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <fmt/core.h>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/config/config_reader.h"
#include "core/run/prepared_variant.h"
#include "reports/files/requests_stream.h"
#include "study/run/fleet_records.h"
#include "study/run/variant_run.h"
#include "study/sweep/sweep_folder.h"
#include "system/parallel.h"
#include "system/progress.h"

namespace metronome {
namespace {

// Every run allocates as much memory as the previous run freed. Returning it to the system in
// between costs a page fault per page, and the threads of a process wait for each other in page
// faults.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestBlockBytes = 32 << 20;  // the most that mallopt accepts
  constexpr int kKeptBytes = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kLargestBlockBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
#endif
}

// The workloads that runs share. The first run that asks for a workload makes it; the cache keeps
// it until its last run has ended.
class WorkloadCache {
 public:
  void expect(const std::string& key) { ++entries_[key].num_expected; }

  std::shared_ptr<const Workload> get(const SweepRun& run) {
    Entry& entry = entries_.at(run.workload_key);
    // Other threads wait for the one that makes it. If that one throws, each of them tries itself.
    const std::lock_guard lock(entry.mutex);
    std::shared_ptr<const Workload> workload = entry.workload;
    if (workload == nullptr) {
      workload = std::make_shared<const Workload>(make_workload(run.scenario));
    }
    --entry.num_expected;
    entry.workload = entry.num_expected > 0 ? workload : nullptr;
    return workload;
  }

 private:
  struct Entry {
    std::mutex mutex;
    std::size_t num_expected = 0;
    std::shared_ptr<const Workload> workload;
  };
  std::map<std::string, Entry> entries_;  // constant once the first thread asks
};

class SweepWork {
 public:
  SweepWork(const SweepPlan& plan, std::span<const std::size_t> chosen, SweepFolder& folder,
            const SweepRunOptions& options)
      : plan_(plan), folder_(folder), options_(options), progress_(!options.is_quiet) {
    collect_pending(chosen);
  }

  SweepOutcome finish() {
    std::vector<std::thread> threads;
    const std::size_t num_threads =
        std::min(static_cast<std::size_t>(options_.num_jobs), pending_.size());
    for (std::size_t i = 1; i < num_threads && start_thread(threads, [this] { work(); }); ++i) {
    }
    work();
    for (std::thread& thread : threads) thread.join();
    progress_.clear();
    if (error_ != nullptr) std::rethrow_exception(error_);
    std::sort(outcome_.failed.begin(), outcome_.failed.end());
    return std::move(outcome_);
  }

 private:
  void collect_pending(std::span<const std::size_t> chosen) {
    std::vector<std::size_t> pending;
    for (const std::size_t i : chosen) {
      const SweepFolder::State state = folder_.state_of(plan_.runs[i]);
      if (state == SweepFolder::State::Done) continue;
      if (state == SweepFolder::State::Damaged) {
        outcome_.warnings.push_back(printable(folder_.run_path(plan_.runs[i])) +
                                    ": was damaged or changed, and is run again");
      }
      pending.push_back(i);
      workloads_.expect(plan_.runs[i].workload_key);
    }
    // The longest runs first, so that no job ends alone with one of them.
    std::stable_sort(pending.begin(), pending.end(), [this](std::size_t a, std::size_t b) {
      return plan_.runs[a].cost > plan_.runs[b].cost;
    });
    num_pending_ = pending.size();
    pending_.assign(pending.begin(), pending.end());
  }

  // Claims the next run; nullopt if none is left or the work was stopped. At the end it waits for
  // runs that another process claimed, as that process may be killed before they are done.
  std::optional<std::size_t> next() {
    for (;;) {
      throw_if_interrupted();
      {
        const std::lock_guard lock(mutex_);
        for (std::size_t tries = pending_.size(); tries > 0 && error_ == nullptr; --tries) {
          const std::size_t i = pending_.front();
          pending_.pop_front();
          if (folder_.try_claim(plan_.runs[i])) return i;
          pending_.push_back(i);
        }
        if (pending_.empty() || error_ != nullptr) return std::nullopt;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  void work() {
    try {
      const std::unique_ptr<Backend> backend = options_.make_backend();
      while (const std::optional<std::size_t> i = next()) {
        run_claimed(*i, *backend);
        folder_.release(plan_.runs[*i]);
        const std::lock_guard lock(mutex_);
        ++num_ended_;
        show_progress();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (error_ == nullptr) error_ = std::current_exception();
      is_stopped_ = true;
    }
  }

  void run_claimed(std::size_t i, Backend& backend) {
    const SweepRun& run = plan_.runs[i];
    // Another process may have done it between the first check and the claim.
    const SweepFolder::State state = folder_.state_of(run);
    if (state == SweepFolder::State::Done) return;
    if (state == SweepFolder::State::Damaged) folder_.set_damaged_aside(run);
    options_.log->write("start", run);
    std::vector<std::string> warnings;
    try {
      warnings = run_point(run, backend);
    } catch (const Interrupted&) {
      throw;
    } catch (const std::bad_alloc&) {
      return record_failure(i, "out of memory");
    } catch (const std::exception& error) {
      return record_failure(i, error.what());
    }
    options_.log->write("done", run);
    const std::lock_guard lock(mutex_);
    ++outcome_.num_run;
    for (const std::string& warning : warnings) {
      outcome_.warnings.push_back(run_text(plan_, run) + ": " + warning);
    }
  }

  void record_failure(std::size_t i, const char* message) {
    folder_.write_failure(plan_.runs[i], message);
    const std::lock_guard lock(mutex_);
    outcome_.failed.push_back(i);
  }

  // Returns the run's warnings.
  std::vector<std::string> run_point(const SweepRun& run, Backend& backend) {
    ResultFolder result(folder_.run_path(run));
    PreparedVariant variant{run.scenario, backend.prepare(run.scenario), workloads_.get(run)};
    check_workload(variant.scenario, *variant.run, *variant.workload);
    std::unique_ptr<RequestsStream> requests;
    if (!keeps_steps(variant)) {
      requests = open_requests_stream(variant.scenario.results, *variant.workload, result, {});
    }
    const auto progress = [this](const RunProgress&) {
      throw_if_interrupted();
      return !is_stopped_.load(std::memory_order_relaxed);
    };
    VariantOutcome outcome =
        run_variant(backend, variant, nullptr, progress, nullptr, requests.get());
    write_variant(outcome, variant, result, requests.get());
    throw_if_interrupted();
    folder_.remove_failure(run);  // before the result, so that none remains beside it
    result.commit();
    return std::move(outcome.warnings);
  }

  // The caller holds the mutex.
  void show_progress() {
    progress_.show(progress_bar_text("sweep", num_ended_, num_pending_) + " runs",
                   static_cast<double>(num_ended_), static_cast<double>(num_pending_ - num_ended_));
  }

  const SweepPlan& plan_;
  SweepFolder& folder_;
  const SweepRunOptions& options_;
  WorkProgress progress_;
  WorkloadCache workloads_;
  std::atomic<bool> is_stopped_ = false;
  std::size_t num_pending_ = 0;

  std::mutex mutex_;  // protects all following members, and the bar
  std::deque<std::size_t> pending_;
  std::size_t num_ended_ = 0;
  SweepOutcome outcome_;
  std::exception_ptr error_;
};

}  // namespace

SweepLog::SweepLog(const std::string& path) : path_(path) {
  if (path.empty()) return;
  std::string what, id;
  std::ifstream earlier = open_input(path);
  const bool is_new = !path_exists(path) || (earlier && !(earlier >> what));
  const bool is_own = (what == "start" || what == "done") && earlier >> id && is_run_id(id);
  if (!is_new && !is_own) {
    throw UsageError("--log: " + printable(path) +
                     ": is not the log of a sweep; allowed: a new file, or such a log");
  }
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file_ < 0) {
    throw UsageError("--log: " + printable(path) +
                     ": cannot be written: " + std::generic_category().message(errno));
  }
}

SweepLog::~SweepLog() {
  if (file_ >= 0) ::close(file_);
}

void SweepLog::write(const char* what, const SweepRun& run) {
  if (file_ < 0) return;
  const std::string line = fmt::format("{} {} {}\n", what, run.id, ::getpid());
  if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw std::runtime_error(path_ + ": cannot write: " + std::generic_category().message(errno));
  }
}

SweepOutcome run_sweep(const SweepPlan& plan, std::span<const std::size_t> chosen,
                       SweepFolder& folder, const SweepRunOptions& options) {
  keep_freed_memory();
  return SweepWork(plan, chosen, folder, options).finish();
}

}  // namespace metronome
