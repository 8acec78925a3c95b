// SPDX-License-Identifier: Apache-2.0
// The books of a run as a policy of Python sees them, and its decisions. Each decision is checked
// before the books carry it out.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "core/engine/books.h"

namespace metronome::python {

// A decision that the books cannot carry out, or one at a time when nobody asks for any.
class PolicyError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class BooksView;

// A request. It stays the same object as long as the request lives.
class RequestView {
 public:
  RequestView(std::shared_ptr<BooksView> view, Request& request)
      : view_(std::move(view)), request_(&request) {}

  const Request& read() const;  // throws PolicyError while the books are closed
  Request& edit() const;
  std::string state() const;

 private:
  std::shared_ptr<BooksView> view_;
  Request* request_;
};

class BooksView : public std::enable_shared_from_this<BooksView> {
 public:
  // The books are open while `work` runs, to fill a plan. Then it may also decide.
  void open_plan(Books& books, const std::function<void()>& work);
  // The books are open while `work` runs, to be read. A plan may be under construction.
  void open(Books& books, const std::function<void()>& work);
  // Before the run ends. Requires the interpreter's lock.
  void close() { handles_.clear(); }

  nanobind::object handle(Request& request);
  // Nobody needs its handle any more, but for those who keep it.
  void drop(const Request& request);

  Books& books() const;    // throws PolicyError while they are closed
  Books& planned() const;  // and while no step is under construction

  nanobind::list running();
  nanobind::list unfinished_prefills();
  nanobind::list waiting(std::int64_t most);
  nanobind::object next_waiting();
  void plan_decodes();
  bool plan_prefill(const RequestView& request, std::int64_t num_tokens);
  bool admit(const RequestView& request, std::int64_t num_tokens);
  void preempt(const RequestView& request);

  // For engines of other rules than Books::plan_decodes() and Books::admit() need.
  bool decode(const RequestView& request);
  bool start(const RequestView& request, std::int64_t num_tokens,
             std::optional<std::int64_t> num_positions);
  void refuse(const RequestView& request);
  void extend_output(const RequestView& request, std::int64_t num_tokens);

  // Whether the last plan refused a request, so that the next one may find work at once.
  bool has_refused() const { return has_refused_; }

 private:
  // The open books, and their use. A call of the policy within another one is for reading.
  struct Access {
    Books* books = nullptr;
    bool has_plan = false;    // a step is under construction
    bool may_decide = false;  // in it
  };
  void with_access(const Access& access, const std::function<void()>& work);
  void count_call();
  std::int32_t checked_tokens(const Request& request, std::int64_t num_tokens);
  void check_no_chunk(const Request& request) const;
  void note_chunk(const Request& request);

  Access access_;
  std::int64_t num_calls_ = 0;             // of decisions in this plan
  bool has_planned_decodes_ = false;       // in this plan
  bool has_refused_ = false;               // in this plan
  std::int64_t num_plans_ = 0;             // begun
  std::vector<std::int64_t> last_chunks_;  // by request: the number of its last plan with a chunk
  std::vector<nanobind::object> handles_;  // by request; null: none yet
};

void define_policy_view(nanobind::module_& module);

}  // namespace metronome::python
