// SPDX-License-Identifier: Apache-2.0
// The books of a run as a policy of Python sees them, and its decisions. Each decision is checked
// before the books carry it out.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>
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
  // The books are open while `work` runs.
  void open(Books& books, const std::function<void()>& work);
  // Before the run ends. Requires the interpreter's lock.
  void close() { handles_.clear(); }

  nanobind::object handle(Request& request);
  // Nobody needs its handle any more, but for those who keep it.
  void drop(const Request& request);

  Books& books() const;  // throws PolicyError while they are closed

  nanobind::list running();
  nanobind::list unfinished_prefills();
  nanobind::list waiting(std::int64_t most);
  nanobind::object next_waiting();
  void plan_decodes();
  bool plan_prefill(const RequestView& request, std::int64_t num_tokens);
  bool admit(const RequestView& request, std::int64_t num_tokens);
  void preempt(const RequestView& request);

 private:
  void count_call();
  std::int32_t checked_tokens(const Request& request, std::int64_t num_tokens);

  Books* books_ = nullptr;
  std::int64_t num_calls_ = 0;             // of decisions in this plan
  bool has_decided_ = false;               // in this plan
  std::vector<nanobind::object> handles_;  // by request; null: none yet
};

void define_policy_view(nanobind::module_& module);

}  // namespace metronome::python
