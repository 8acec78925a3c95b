// SPDX-License-Identifier: Apache-2.0
#include "python/policy_view.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <fmt/core.h>
#include <string>

#include "core/base/error.h"

namespace metronome::python {

namespace nb = nanobind;

namespace {

// More decisions than any plan needs: the policy goes on forever.
constexpr std::int64_t kMostCalls = 1'000'000;

[[noreturn]] void refuse_decision(const Request& request, const std::string& why) {
  throw PolicyError(fmt::format("request {}: {}", index(request.id), why));
}

const char* name_of(RequestState state) {
  switch (state) {
    case RequestState::Waiting: return "waiting";
    case RequestState::Prefill: return "prefill";
    case RequestState::Decode: return "decode";
    case RequestState::Finished: return "finished";
    default: return "failed";
  }
}

}  // namespace

const Request& RequestView::read() const {
  view_->books();
  return *request_;
}

Request& RequestView::edit() const {
  view_->books();
  return *request_;
}

std::string RequestView::state() const { return name_of(read().state); }

void BooksView::open(Books& books, const std::function<void()>& work) {
  books_ = &books;
  num_calls_ = 0;
  has_decided_ = false;
  try {
    work();
  } catch (...) {
    books_ = nullptr;
    throw;
  }
  books_ = nullptr;
}

Books& BooksView::books() const {
  if (books_ != nullptr) return *books_;
  throw PolicyError(
      "the books are closed; allowed: to read them, and to decide, while fill() or another "
      "function "
      "of the policy is called");
}

nb::object BooksView::handle(Request& request) {
  const std::size_t place = index(request.id);
  if (handles_.size() <= place) handles_.resize(std::max(place + 1, 2 * handles_.size()));
  nb::object& known = handles_[place];
  if (!known.is_valid()) known = nb::cast(RequestView(shared_from_this(), request));
  return known;
}

void BooksView::drop(const Request& request) {
  if (index(request.id) < handles_.size()) handles_[index(request.id)].reset();
}

nb::list BooksView::running() {
  nb::list all;
  for (Request* request : books().running()) {
    if (!request->has_ended()) all.append(handle(*request));
  }
  return all;
}

nb::list BooksView::unfinished_prefills() {
  nb::list all;
  for (Request* request : books().unfinished_prefills()) all.append(handle(*request));
  return all;
}

nb::list BooksView::waiting(std::int64_t most) {
  nb::list all;
  books().waiting().visit_in_order([&](Request& request) {
    if (std::ssize(all) >= most) return false;
    all.append(handle(request));
    return true;
  });
  return all;
}

nb::object BooksView::next_waiting() {
  Request* const request = books().next_waiting();
  return request == nullptr ? nb::none() : handle(*request);
}

void BooksView::count_call() {
  has_decided_ = true;
  if (++num_calls_ <= kMostCalls) return;
  throw PolicyError(
      fmt::format("fill() has decided {} times in one plan, and makes no end of it", kMostCalls));
}

std::int32_t BooksView::checked_tokens(const Request& request, std::int64_t num_tokens) {
  const std::int32_t num_left = books().num_uncomputed_tokens(request);
  if (num_tokens >= 1 && num_tokens <= num_left) return static_cast<std::int32_t>(num_tokens);
  refuse_decision(request, fmt::format("a chunk of {} tokens; allowed: 1 to {}, what it has yet to "
                                       "compute",
                                       num_tokens, num_left));
}

void BooksView::plan_decodes() {
  if (has_decided_) {
    throw PolicyError("plan_decodes() comes first in a plan, and once");
  }
  count_call();
  books().plan_decodes();
}

bool BooksView::plan_prefill(const RequestView& view, std::int64_t num_tokens) {
  count_call();
  Request& request = view.edit();
  if (request.state != RequestState::Prefill) {
    refuse_decision(request,
                    fmt::format("its state is {}; allowed: prefill, of unfinished_prefills() and "
                                "not preempted since",
                                name_of(request.state)));
  }
  if (books().num_planned_tokens(request) > 0) {
    refuse_decision(request, "it has a chunk in this plan; allowed: one");
  }
  if (books().kv_cache().caches_prefixes() && !books().plan().admitted.empty()) {
    refuse_decision(request,
                    "plan_prefill() after admit() in one plan, with prefix caching: blocks that it "
                    "takes from others may be in a cached prefix; allowed: begun prompts first");
  }
  return books().plan_prefill(request, checked_tokens(request, num_tokens));
}

bool BooksView::admit(const RequestView& view, std::int64_t num_tokens) {
  count_call();
  Request& request = view.edit();
  if (request.state != RequestState::Waiting) {
    refuse_decision(request, fmt::format("its state is {}; allowed: waiting, to be admitted",
                                         name_of(request.state)));
  }
  if (books().next_waiting() == nullptr) {
    refuse_decision(request,
                    "nobody can be admitted, as max_num_seqs run or this plan has preempted; "
                    "allowed: while next_waiting() is not None");
  }
  return books().admit(request, checked_tokens(request, num_tokens));
}

void BooksView::preempt(const RequestView& view) {
  count_call();
  Request& request = view.edit();
  const bool runs = request.state == RequestState::Prefill || request.state == RequestState::Decode;
  if (!runs) {
    refuse_decision(request, fmt::format("its state is {}; allowed: to preempt one that runs",
                                         name_of(request.state)));
  }
  books().preempt(request);
}

namespace {

void define_request(nb::module_& module) {
  const auto number = [](std::int32_t Request::*member) {
    return [member](const RequestView& r) { return r.read().*member; };
  };
  nb::class_<RequestView>(module, "Request", "A request, while the books are open.")
      .def_prop_ro(
          "id", [](const RequestView& r) { return index(r.read().id); },
          "Its number in order of submission, from 0.")
      .def_prop_ro("state", &RequestView::state, "waiting, prefill, decode, finished or failed.")
      .def_prop_ro("prompt_tokens", number(&Request::num_prompt_tokens), "Tokens of its prompt.")
      .def_prop_ro(
          "max_tokens", [](const RequestView& r) { return r.read().limit_tokens(); },
          "The most output tokens that the client asks for.")
      .def_prop_ro(
          "output_tokens", [](const RequestView& r) { return r.read().num_output_tokens(); },
          "Output tokens that it has received.")
      .def_prop_ro(
          "computed_tokens", [](const RequestView& r) { return r.read().num_computed_tokens(); },
          "Tokens that are computed or planned, of prompt and output.")
      .def_prop_ro(
          "uncomputed_tokens",
          [](const RequestView& r) { return r.read().num_uncomputed_tokens(); },
          "Tokens to compute, those of a cached prefix among them.")
      .def_prop_ro("priority", number(&Request::priority), "The lowest is served first.")
      .def_prop_ro("preemptions", number(&Request::num_preemptions),
                   "How often it has lost its KV blocks.")
      .def_prop_ro(
          "arrival_ns", [](const RequestView& r) { return r.read().arrival; },
          "Nanoseconds since the start of the clock.")
      .def("__repr__", [](const RequestView& r) {
        return fmt::format("<Request {}: {}>", index(r.read().id), r.state());
      });
}

template <class Result>
auto of_books(Result (*read)(Books&)) {
  return [read](const BooksView& view) { return read(view.books()); };
}

}  // namespace

void define_policy_view(nb::module_& module) {
  define_request(module);
  const auto of = [](auto read) { return of_books(+read); };
  nb::class_<BooksView>(module, "Books",
                        "What is true, and the operations that carry decisions out.")
      .def_prop_ro("now_ns", of([](Books& b) { return b.now(); }),
                   "Time of the plan: nanoseconds since the start of the clock.")
      .def_prop_ro("step", of([](Books& b) { return b.plan().step_index; }),
                   "Number of the plan, from 0.")
      .def_prop_ro("planned_tokens", of([](Books& b) { return b.plan().num_tokens(); }),
                   "Tokens in the plan so far.")
      .def_prop_ro("max_num_seqs", of([](Books& b) { return b.max_num_seqs(); }),
                   "The most requests that may run.")
      .def_prop_ro("max_model_len", of([](Books& b) { return b.max_model_len(); }),
                   "The most tokens of a request.")
      .def_prop_ro("num_running", of([](Books& b) { return b.num_running(); }),
                   "Requests that run, with those admitted in this plan.")
      .def_prop_ro("num_waiting", of([](Books& b) { return b.waiting().size(); }),
                   "Requests in the queue.")
      .def_prop_ro("num_unfinished_prefills",
                   of([](Books& b) { return b.num_unfinished_prefills(); }),
                   "Running requests with uncomputed prompt tokens.")
      .def_prop_ro("block_size", of([](Books& b) { return b.kv_cache().block_size(); }),
                   "Tokens of a KV block.")
      .def_prop_ro("num_blocks", of([](Books& b) { return b.kv_cache().num_blocks(); }),
                   "KV blocks of the cache.")
      .def_prop_ro("num_free_blocks", of([](Books& b) { return b.kv_cache().num_free_blocks(); }),
                   "KV blocks that nobody has.")
      .def("running", &BooksView::running,
           "Requests that run, in service order: the last one is preempted first.")
      .def("unfinished_prefills", &BooksView::unfinished_prefills,
           "Running requests with uncomputed prompt tokens, in the order of the queue.")
      .def("waiting", &BooksView::waiting, nb::arg("most") = INT64_MAX,
           "The first `most` requests of the queue, in order.")
      .def("next_waiting", &BooksView::next_waiting,
           "The head of the queue; None where nobody can be admitted: the queue is empty, "
           "max_num_seqs run, or this plan has preempted.")
      .def(
          "uncomputed_tokens",
          [](BooksView& view, const RequestView& request) {
            return view.books().num_uncomputed_tokens(request.read());
          },
          nb::arg("request"),
          "Tokens that the request has yet to compute; of a waiting one, without those of its "
          "cached prefix.")
      .def("plan_decodes", &BooksView::plan_decodes,
           "Plans one token for every running request with a computed prompt, in service order. "
           "Preempts the last ones when KV blocks run out.")
      .def("plan_prefill", &BooksView::plan_prefill, nb::arg("request"), nb::arg("tokens"),
           "Plans the next tokens of a running prompt. False where preempting all requests behind "
           "it would give it no room; then it keeps its blocks and waits a step.")
      .def("admit", &BooksView::admit, nb::arg("request"), nb::arg("tokens"),
           "Admits a waiting request with a first chunk behind its cached prefix. False where too "
           "few blocks are free for its whole prompt; then it stays in the queue.")
      .def("preempt", &BooksView::preempt, nb::arg("request"),
           "Returns a running request to the queue. It loses its KV blocks, and its chunk of this "
           "plan.");
}

}  // namespace metronome::python
