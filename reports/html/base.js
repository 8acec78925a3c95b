// SPDX-License-Identifier: Apache-2.0
'use strict';
// Every figure uses these: reading the data, colours of the theme, texts of numbers.

// Base64 VLQ, as VlqText in reports/html/report_data.h writes it. With `isDelta`, each number is
// the difference to the one before.
function decodeVlq(text, isDelta = false) {
  const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const valueOf = decodeVlq.table || (decodeVlq.table = new Int8Array(128));
  if (valueOf[66] === 0) for (let i = 0; i < 64; ++i) valueOf[digits.charCodeAt(i)] = i;
  const numbers = new Float64Array(text.length);
  let size = 0, value = 0, weight = 1, last = 0;
  for (let i = 0; i < text.length; ++i) {
    const digit = valueOf[text.charCodeAt(i)];
    value += (digit & 31) * weight;
    weight *= 32;
    if (digit & 32) continue;
    const half = Math.floor(value / 2);
    const number = value % 2 ? -half : half;
    last = isDelta ? last + number : number;
    numbers[size++] = last;
    value = 0;
    weight = 1;
  }
  return numbers.slice(0, size);
}

// Parts have Okabe and Ito's colours, which people tell apart whatever their colour vision; lighter
// on dark. Runs have others: no run looks like prefill, decode, a late token or a limit.
const kLight = {
  name: 'light', panel: '#ffffff', text: '#1b2430', muted: '#5b6675', grid: '#e3e7ec',
  axis: '#8b96a5', other: '#b3bcc7',
  runs: ['#00875f', '#6b3fc4', '#c2418f', '#3d4654', '#8a7d00', '#1593a5', '#8f5a36', '#2c3182'],
  decode: '#0072b2', drafts: '#79b8de', encode: '#f0a36b', prefill: '#d55e00',
  host: '#9aa3ad', waiting: '#e0a100',
  preemption: '#6e4020', slo: '#b00020', queue: '#c9d0d8', late: '#e69f00', tooLate: '#c2200a',
};
const kDark = {
  name: 'dark', panel: '#171e27', text: '#e6ebf1', muted: '#9aa7b6', grid: '#263040',
  axis: '#66758a', other: '#4a5666',
  runs: ['#2bc79b', '#b49cff', '#f08cc8', '#d0d6de', '#cfc243', '#5fd3e0', '#cf9d75', '#8f9cf0'],
  decode: '#56b4e9', drafts: '#b5dcf5', encode: '#ffc89e', prefill: '#ff8b3d',
  host: '#7c8896', waiting: '#f2c14e',
  preemption: '#b98a63', slo: '#ff6b6b', queue: '#414e5e', late: '#f2c14e', tooLate: '#ff5a45',
};
const kDashes = ['', '7 3', '2 3', '9 3 2 3', '4 2', '1 3', '12 4', '6 2 1 2 1 2'];
const kMarkers = [d3.symbolCircle, d3.symbolSquare, d3.symbolTriangle, d3.symbolDiamond,
  d3.symbolCross, d3.symbolStar, d3.symbolWye, d3.symbolCircle];
// So many runs or lines are in colour at once. Beyond the colours they begin again with other
// dashes and markers: no two look alike.
const kMostStyles = 12;
function styleOf(place) {
  const {length} = kDashes;
  const turn = (place + 3 * Math.floor(place / length)) % length;
  return {get color() { return theme().runs[place % length]; }, dash: kDashes[turn],
    marker: kMarkers[turn]};
}
const kFont = 'system-ui, "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif';
const kParts = [
  ['decode', 'decode'], ['drafts', 'drafts'], ['encode', 'encoding of images'],
  ['prefill', 'prefill chunks'], ['host', 'host gap'], ['waiting', 'waiting'],
  ['preemption', 'preempted']];

let isPrinting = false;
// A height on screen or paper, where figures are flatter, so that two of them share a page.
const fitted = (height) => (isPrinting ? Math.round(0.75 * height) : height);
function theme() {
  if (isPrinting) return kLight;
  const chosen = document.documentElement.dataset.theme;
  const isDark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  return isDark ? kDark : kLight;
}

const grouped = d3.format(',');
function formatNumber(number, decimals = 0) {
  // A tie goes to the even digit, as in the tables.
  const scaled = number * 10 ** decimals;
  if (Math.abs(scaled % 1) === 0.5) number = 2 * Math.round(scaled / 2) / 10 ** decimals;
  return Number.isFinite(number) ? d3.format(`,.${decimals}f`)(number) : '-';
}
// A number on an axis: 0.5, 200, 20k.
const axisNumber = (number) =>
  (Math.abs(number) < 1000 ? `${+number.toPrecision(4)}` : d3.format('~s')(number));
// Milliseconds with as many decimals as people read.
function formatMs(ms) {
  if (!Number.isFinite(ms)) return '-';
  if (ms >= 10000) return `${formatNumber(ms / 1000, 1)} s`;
  return `${formatNumber(ms, ms < 1 ? 3 : ms < 100 ? 1 : 0)} ms`;
}
const formatUs = (us) => formatMs(us / 1000);
const formatSeconds = (us) => `${formatNumber(us / 1e6, us < 1e8 ? 3 : 1)} s`;
const plural = (count, word) => `${grouped(count)} ${word}${count === 1 ? '' : 's'}`;

function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'class') node.className = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Long names break between their words, not within one.
const breakable = (name) => name.split(/(?<=[_=.,:/-])/)
  .flatMap((part, i) => (i === 0 ? [part] : [element('wbr'), part]));

// The value at a dotted path, or undefined.
function at(object, path) {
  return path.split('.').reduce((inner, key) => (inner == null ? undefined : inner[key]), object);
}

// Columns of one run, decoded when somebody asks for them.
class Columns {
  constructor(texts, deltas) {
    for (const [name, text] of Object.entries(texts)) {
      if (typeof text !== 'string') {
        this[name] = text;
        continue;
      }
      let decoded = null;
      Object.defineProperty(this, name, {
        enumerable: true,
        get: () => (decoded = decoded || decodeVlq(text, deltas.includes(name))),
      });
    }
  }
}

const kStepDeltas = ['position', 'end', 'decode', 'running', 'waiting', 'blocks', 'preempted'];
function decodeDetail(detail) {
  const requests = new Columns(detail.requests, ['id', 'arrival']);
  requests.prefills = new Columns(detail.requests.prefills, ['row', 'end']);
  requests.late = new Columns(detail.requests.late, ['row', 'end']);
  const curve = (name) => new Columns(detail[name], ['ns', 'below']);
  // A client that watched a server saw no steps, and no causes.
  const hasSteps = detail.has_steps !== false;
  for (const stall of detail.stalls) stall.isUnseen = !hasSteps;
  return {
    hasSteps, isEstimated: detail.is_estimated,
    itl: curve('itl_curve'), ttft: curve('ttft_curve'), e2el: curve('e2el_curve'),
    gaps: new Columns(detail.gaps, ['after']),
    steps: new Columns(detail.steps, kStepDeltas),
    replicas: detail.replicas ? decodeReplicas(detail.replicas) : null,
    stalls: detail.stalls, culprits: detail.culprits, culpritRequests: detail.culprit_requests,
    totalParts: detail.total_parts, requests,
    ttftParts: new Columns(detail.ttft_parts, []),
  };
}

// The runs, with what figures need to tell them apart. A selected run is in colour, the others are
// grey; one that the table's filter leaves out is in no figure.
class Run {
  constructor(run, index) {
    Object.assign(this, {index, name: run.name, result: run.result,
      config: run.result.config || {}, detail: run.detail ? decodeDetail(run.detail) : null,
      style: null, isListed: true});
  }
  get isSelected() { return this.style !== null; }
  get isHidden() { return !this.isSelected || !this.isListed; }
  get color() { return this.style ? this.style.color : theme().other; }
  get dash() { return this.style ? this.style.dash : ''; }
  get marker() { return this.style ? this.style.marker : d3.symbolCircle; }
  slo(metric) { return at(this.result, `slo.${metric}_ms`); }
}

// The program's table of figures by key, and its lists of keys.
const kTable = {figures: {}, lists: {}};
const wordsOf = (key) => kTable.figures[key].words;
const blockOf = (key) => kTable.figures[key].block;  // "ITL, ms"
// 1: more is better; -1: less; 0: neither.
const betterOf = (key) => (kTable.figures[key] ? kTable.figures[key].better : 0);

// The name of a figure on an axis, with its unit.
function axisName(key) {
  const {words, unit} = kTable.figures[key];
  return unit.startsWith('/') ? words + unit : unit ? `${words}, ${unit}` : words;
}

// A value of a figure with its unit.
function figureText(key, value) {
  const {unit, scale, decimals} = kTable.figures[key];
  if (unit === 'ms') return formatMs(value);
  const text = formatNumber(value * scale, decimals);
  return text === '-' || !unit ? text : unit.startsWith('/') ? text + unit : `${text} ${unit}`;
}

function readRuns() {
  const data = JSON.parse(document.getElementById('report-data').textContent);
  Object.assign(kTable, {figures: data.figures, lists: data.lists});
  const runs = data.runs.map((run, i) => new Run(run, i));
  selectRuns(runs, runs.filter((run, i) => data.runs[i].is_selected));
  return runs;
}

// Gives the first few of `chosen` a style each, and takes it from all others.
function selectRuns(runs, chosen) {
  for (const run of runs) run.style = null;
  chosen.slice(0, kMostStyles).forEach((run, i) => { run.style = styleOf(i); run.place = i; });
}

// Selects the run or not; false where no style is left.
function setSelected(runs, run, isSelected) {
  if (!isSelected) run.style = null;
  if (run.isSelected === isSelected) return true;
  const taken = new Set(runs.filter((other) => other.isSelected).map((other) => other.place));
  // The style that it had, if it is free.
  const place = [run.place, ...d3.range(kMostStyles)]
    .find((free) => free !== undefined && !taken.has(free));
  if (place === undefined) return false;
  run.place = place;
  run.style = styleOf(place);
  return true;
}

// First index whose value is not less.
const lowerBound = (sorted, value) => d3.bisector((x) => x).left(sorted, value);

const listed = (runs) => runs.filter((run) => run.isListed);
function detailed(runs) { return runs.filter((run) => run.detail && !run.isHidden); }
// Detailed runs whose steps are known.
function stepped(runs) { return detailed(runs).filter((run) => run.detail.hasSteps); }

// The run with the longest gap, which has most to show.
function mostStalled(runs) {
  return runs[Math.max(0, d3.maxIndex(runs, (run) => run.result.max_itl_ms || 0))];
}

// Facts that two runs must share before one's figures are called better, and the text to show
// where they differ: the rule of the terminal's table, and one model on one machine.
const kCompared = [
  ['ran other models, or on other machines',
    (r) => [r.model_id, r.backend, r.hardware, r.tensor_parallel_size]],
  ['had different workloads',
    (r) => [r.num_prompts, r.request_rate, r.burstiness, r.max_concurrency]],
  ['had different SLOs', (r) => [r.slo]],
  ['did not complete the same requests',
    (r) => [r.completed, r.total_input_tokens, r.total_output_tokens]]];

// Why the figures of the runs do not compare; empty when they do.
function incomparableBecause(runs) {
  const differ = (facts) => new Set(runs.map(({result}) => JSON.stringify(facts(result)))).size > 1;
  const found = kCompared.find(([, facts]) => differ(facts));
  return found ? `the runs ${found[0]}` : '';
}

// The runs in sets of those that compare, without runs that compare with no other.
function comparedSets(runs) {
  const sets = new Map();
  for (const run of runs) {
    const key = JSON.stringify(kCompared.map(([, facts]) => facts(run.result)));
    sets.set(key, [...(sets.get(key) || []), run]);
  }
  return [...sets.values()].filter((set) => set.length > 1);
}

// ---- Which run is the steadiest: as in core/metrics/steadiness.h ----

const kSameShare = 0.01;
const isSameFigure = (a, b) =>
  Math.abs(a - b) <= kSameShare * Math.max(Math.abs(a), Math.abs(b));

// Whether fewer than 1 % of the gaps hold most of the stalled time.
function hidesStalls({result: r}) {
  const stalled = r.mean_itl_ms - r.p50_itl_ms;
  const seen = 0.4 * (r.p90_itl_ms - r.p50_itl_ms) + 0.05 * (r.p95_itl_ms - r.p50_itl_ms) +
    0.04 * (r.p99_itl_ms - r.p50_itl_ms);
  return stalled > 0.001 * r.mean_itl_ms && stalled > 2 * seen;
}

// The figure that says how steady runs are.
const steadyKey = (runs) => (runs.some(hidesStalls) ? 'max_itl_ms' : 'p99_itl_ms');

// The best as `metronome sweep` orders them: of those with the most goodput, if there is an SLO,
// the steadiest.
function bestRun(runs, key) {
  const hasSlo = runs.every((run) => Number.isFinite(run.result.request_goodput));
  const most = d3.max(runs, (run) => run.result.request_goodput);
  const equals = hasSlo ? [...runs].sort((a, b) =>
    b.result.request_goodput - a.result.request_goodput)
    .filter((run) => isSameFigure(run.result.request_goodput, most)) : runs;
  const least = d3.min(equals, (run) => run.result[key]);
  return hasSlo ? equals.find((run) => isSameFigure(run.result[key], least))
    : equals.find((run) => run.result[key] === least);
}

function sharedSlo(runs, metric) {
  const limits = new Set(runs.map((run) => run.slo(metric)).filter((limit) => limit != null));
  return limits.size === 1 ? [...limits][0] : null;
}
