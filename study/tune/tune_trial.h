// A setting at one load, and how much it tells of the requests that it did not see.
//
// Requests that are served together fail together: one stalled step breaks a limit of everybody who
// decodes, so a thousand requests may tell no more than ten independent ones would. How many they
// are worth is estimated from batches of neighbours (batch means), as design effect: the variance
// of the attainment over that of independent requests (Kish, Survey Sampling, 1965). The bounds of
// the attainment are those of Clopper and Pearson for that many requests, smaller by the freedom
// that the estimate has, after Korn and Graubard, Survey Methodology 24 (1998): they hold where
// hardly anything fails, too, which bounds from resampling do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace metronome {

struct TuneTrial {
  double load = 0;                 // requests/s
  std::size_t num_requests = 0;    // asked for
  std::vector<std::uint8_t> good;  // of each request, in order of arrival: whether it met the SLO
  std::size_t num_runs = 1;    // independent ones of equal length, one behind the other in `good`
  double num_in_system = 0;    // mean number of requests that wait or are served
  bool can_be_longer = false;  // whether more requests could be had

  double attainment = 0;  // share of good requests
  double goodput = 0;     // attainment x load, requests/s
  double output_throughput = 0;
  // Of the requests in `good` that completed; NaN without any.
  double p99_ttft_ms = 0;
  double p99_itl_ms = 0;
};

// How requests of one outcome cluster.
struct Clustering {
  double design_effect = 1;      // 1: as if independent
  std::size_t num_batches = 20;  // that it was estimated from
};

// Requests that a trial needs for its batches to be nearly independent: each has to last twice as
// long as a request stays.
std::size_t requests_for_batches(const TuneTrial& trial);

// How requests may be taken to cluster at a load, for a setting with these trials: as in the trial
// that clusters most, of those with at most one and a half times as many bad requests as `target`
// allows and of the nearest that has too many. Loads more than a fifth higher are left out:
// clusters grow with the load.
Clustering clustering_near(const std::vector<TuneTrial>& trials, double load, double target);

struct AttainmentBounds {
  double low = 0;   // 95 % sure that more are good
  double high = 0;  // 95 % sure that fewer are
};

// Of all requests that could have come at the trial's load. They cluster as in the trial or, where
// they do more, as `near`: a trial in which nothing fails does not tell how much would together.
AttainmentBounds attainment_bounds(const TuneTrial& trial, const Clustering& near);

// Whether one may be 95 % sure that requests are good more often in `a` than in `b`, which served
// the same requests: a t test on the differences of their batches.
bool is_good_more_often(const TuneTrial& a, const TuneTrial& b);

}  // namespace metronome
