// SPDX-License-Identifier: Apache-2.0
#include "python/policy_view.h"

#include <nanobind/stl/optional.h>
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

void BooksView::with_access(const Access& access, const std::function<void()>& work) {
  const Access before = access_;
  access_ = access;
  try {
    work();
  } catch (...) {
    access_ = before;
    throw;
  }
  access_ = before;
}

void BooksView::open_plan(Books& books, const std::function<void()>& work) {
  num_calls_ = 0;
  has_planned_decodes_ = false;
  has_refused_ = false;
  ++num_plans_;
  with_access({.books = &books, .has_plan = true, .may_decide = true}, work);
}

void BooksView::open(Books& books, const std::function<void()>& work) {
  with_access({.books = &books, .has_plan = access_.has_plan}, work);
}

Books& BooksView::books() const {
  if (access_.books != nullptr) return *access_.books;
  throw PolicyError(
      "the books are closed; allowed: to read them, and to decide, while fill() or another "
      "function of the policy is called");
}

Books& BooksView::planned() const {
  Books& open = books();
  if (access_.has_plan) return open;
  throw PolicyError("no step is under construction; allowed: in fill()");
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
  planned();
  if (!access_.may_decide) throw PolicyError("decisions belong in fill(); allowed: to read here");
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
  count_call();
  if (num_calls_ > 1) throw PolicyError("plan_decodes() comes first in a plan, and once");
  has_planned_decodes_ = true;
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
  check_no_chunk(request);
  if (books().kv_cache().caches_prefixes() && !books().plan().admitted.empty()) {
    refuse_decision(request,
                    "plan_prefill() after admit() in one plan, with prefix caching: blocks that it "
                    "takes from others may be in a cached prefix; allowed: begun prompts first");
  }
  const bool has_room = books().plan_prefill(request, checked_tokens(request, num_tokens));
  if (has_room) note_chunk(request);
  return has_room;
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
  const bool has_room = books().admit(request, checked_tokens(request, num_tokens));
  if (has_room) note_chunk(request);
  return has_room;
}

void BooksView::preempt(const RequestView& view) {
  count_call();
  Request& request = view.edit();
  const bool runs = request.state == RequestState::Prefill || request.state == RequestState::Decode;
  if (!runs) {
    refuse_decision(request, fmt::format("its state is {}; allowed: to preempt one that runs",
                                         name_of(request.state)));
  }
  if (index(request.id) < last_chunks_.size()) last_chunks_[index(request.id)] = 0;
  books().preempt(request);
}

void BooksView::check_no_chunk(const Request& request) const {
  const std::size_t place = index(request.id);
  if (place >= last_chunks_.size() || last_chunks_[place] != num_plans_) return;
  refuse_decision(request, "it has a chunk in this plan; allowed: one");
}

void BooksView::note_chunk(const Request& request) {
  const std::size_t place = index(request.id);
  if (last_chunks_.size() <= place) last_chunks_.resize(std::max(place + 1, 2 * place));
  last_chunks_[place] = num_plans_;
}

bool BooksView::decode(const RequestView& view) {
  count_call();
  Request& request = view.edit();
  if (has_planned_decodes_) {
    refuse_decision(request, "plan_decodes() has planned the decodes; allowed: one of them");
  }
  check_no_chunk(request);
  if (!request.is_decodable()) {
    refuse_decision(request, "it has nothing to decode; allowed: where can_decode is true");
  }
  books().running_list();  // from here on each decode is a chunk
  if (!books().kv_cache().grow(request, request.num_computed_tokens() + 1)) return false;
  books().add_chunk(request, 1);
  note_chunk(request);
  return true;
}

bool BooksView::start(const RequestView& view, std::int64_t num_tokens,
                      std::optional<std::int64_t> num_positions) {
  count_call();
  Request& request = view.edit();
  KvCacheManager& kv_cache = books().kv_cache();
  if (books().waiting().front() != &request) {
    refuse_decision(request, "it is not the head of the queue; allowed: waiting(1)[0]");
  }
  if (kv_cache.caches_prefixes()) {
    refuse_decision(request, "start() knows no cached prefix; allowed: admit()");
  }
  if (books().num_running() >= static_cast<std::size_t>(books().max_num_seqs())) {
    refuse_decision(request, "max_num_seqs run; allowed: while fewer do");
  }
  const std::int32_t chunk = checked_tokens(request, num_tokens);
  const std::int64_t wanted = num_positions.value_or(request.num_tokens());
  if (wanted < chunk || wanted > std::max(books().max_model_len(), request.num_tokens())) {
    refuse_decision(request, fmt::format("room for {} positions; allowed: from its chunk of {} to "
                                         "max_model_len",
                                         wanted, chunk));
  }
  const auto positions = static_cast<std::int32_t>(wanted);
  if (kv_cache.num_blocks_to_take(request, {}, positions) > kv_cache.num_free_blocks()) {
    return false;
  }
  books().start(request, {}, positions);
  books().add_chunk(request, chunk);
  note_chunk(request);
  return true;
}

void BooksView::refuse(const RequestView& view) {
  count_call();
  Request& request = view.edit();
  if (books().waiting().front() != &request) {
    refuse_decision(request, "only the head of the queue is refused; allowed: waiting(1)[0]");
  }
  has_refused_ = true;
  books().refuse(request);
}

void BooksView::extend_output(const RequestView& view, std::int64_t num_tokens) {
  count_call();
  Request& request = view.edit();
  if (num_tokens < 0 || num_tokens > request.num_output_tokens()) {
    refuse_decision(request, fmt::format("{} more output tokens; allowed: 0 to {}, those that it "
                                         "has received",
                                         num_tokens, request.num_output_tokens()));
  }
  request.max_output_tokens += static_cast<std::int32_t>(num_tokens);
  request.num_final_tokens += static_cast<std::int32_t>(num_tokens);
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
      .def_prop_ro(
          "written_tokens", [](const RequestView& r) { return r.read().num_cached_tokens(); },
          "Tokens whose KV is written: computed_tokens without those of steps in flight.")
      .def_prop_ro(
          "can_decode", [](const RequestView& r) { return r.read().is_decodable(); },
          "Whether its prompt is computed, and its last token neither known nor in flight.")
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

template <class Result>
auto of_plan(Result (*read)(Books&)) {
  return [read](const BooksView& view) { return read(view.planned()); };
}

void define_reading(nb::class_<BooksView>& books) {
  books
      .def_prop_ro("now_ns", of_plan(+[](Books& b) { return b.now(); }),
                   "Time of the plan: nanoseconds since the start of the clock.")
      .def_prop_ro("step", of_plan(+[](Books& b) { return b.plan().step_index; }),
                   "Number of the plan, from 0.")
      .def_prop_ro("planned_tokens", of_plan(+[](Books& b) { return b.plan().num_tokens(); }),
                   "Tokens in the plan so far.")
      .def_prop_ro("max_num_seqs", of_books(+[](Books& b) { return b.max_num_seqs(); }),
                   "The most requests that may run.")
      .def_prop_ro("max_model_len", of_books(+[](Books& b) { return b.max_model_len(); }),
                   "The most tokens of a request.")
      .def_prop_ro("num_running", of_books(+[](Books& b) { return b.num_running(); }),
                   "Requests that run, with those admitted in this plan.")
      .def_prop_ro("num_waiting", of_books(+[](Books& b) { return b.waiting().size(); }),
                   "Requests in the queue.")
      .def_prop_ro("num_unfinished_prefills",
                   of_books(+[](Books& b) { return b.num_unfinished_prefills(); }),
                   "Running requests with uncomputed prompt tokens.")
      .def_prop_ro("block_size", of_books(+[](Books& b) { return b.kv_cache().block_size(); }),
                   "Tokens of a KV block.")
      .def_prop_ro("num_blocks", of_books(+[](Books& b) { return b.kv_cache().num_blocks(); }),
                   "KV blocks of the cache.")
      .def_prop_ro("watermark_blocks",
                   of_books(+[](Books& b) { return b.kv_cache().watermark_blocks(); }),
                   "KV blocks that admission leaves free while requests run (kv_cache.watermark).")
      .def_prop_ro("num_free_blocks",
                   of_books(+[](Books& b) { return b.kv_cache().num_free_blocks(); }),
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
          "blocks_for",
          [](const BooksView& view, std::int64_t num_tokens) {
            return view.books().kv_cache().blocks_for(num_tokens);
          },
          nb::arg("tokens"), "KV blocks that hold so many tokens.")
      .def(
          "uncomputed_tokens",
          [](BooksView& view, const RequestView& request) {
            return view.books().num_uncomputed_tokens(request.read());
          },
          nb::arg("request"),
          "Tokens that the request has yet to compute; of a waiting one, without those of its "
          "cached prefix.");
}

void define_decisions(nb::class_<BooksView>& books) {
  books
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
           "plan.")
      .def("decode", &BooksView::decode, nb::arg("request"),
           "Plans one token of a request whose can_decode is true, instead of plan_decodes(). "
           "False where no KV block is free for it; nobody is preempted.")
      .def("start", &BooksView::start, nb::arg("request"), nb::arg("tokens"),
           nb::arg("positions").none() = nb::none(),
           "Takes the head of the queue with a first chunk, and KV blocks for so many positions at "
           "once: by default its whole prompt. False where too few are free; the watermark is the "
           "policy's business. Without prefix caching.")
      .def("refuse", &BooksView::refuse, nb::arg("request"),
           "Ends the head of the queue, which can never be served.")
      .def("extend_output", &BooksView::extend_output, nb::arg("request"), nb::arg("tokens"),
           "Lets a request have so many more output tokens, at most those that it has received: "
           "for engines that count anew after a preemption.");
}

}  // namespace

void define_policy_view(nb::module_& module) {
  define_request(module);
  nb::class_<BooksView> books(module, "Books",
                              "What is true, and the operations that carry decisions out.");
  define_reading(books);
  define_decisions(books);
}

}  // namespace metronome::python
