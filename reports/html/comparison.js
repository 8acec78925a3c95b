// SPDX-License-Identifier: Apache-2.0
// Figures that compare runs: against chunk size, against load, throughput against latency.

// The common start of the names, less a part of a number: "" when that says nothing.
function commonName(names) {
  let length = 0;
  while (length < names[0].length && names.every((name) => name[length] === names[0][length])) {
    ++length;
  }
  const start = names[0].slice(0, length);
  const isCut = names.some((name) => /\d/.test(name[length] || ''));
  const name = (isCut ? start.replace(/\d+$/, '') : start).replace(/[\s_.,=:-]+$/, '');
  return name.length >= 3 ? name : '';
}

// A setting in words.
function settingText(config, key) {
  if (config[key] === undefined) return '';
  const isPlain = key.endsWith('.policy') || key === 'backend';
  return (isPlain ? config[key] : `${key.split('.').pop()} ${config[key]}`).replaceAll('"', '');
}

// Settings that tell runs apart: the first few in which they differ, and of the others those
// that tell more of them apart.
function differencesText(configs) {
  const keys = new Set(configs.flatMap((config) => Object.keys(config)));
  let texts = configs.map(() => []);
  let numAdded = 0;
  const numDifferent = (lists) => new Set(lists.map((list) => list.join())).size;
  for (const key of keys) {
    if (new Set(configs.map((config) => config[key])).size === 1) continue;
    const longer = configs.map((config, i) => {
      const text = settingText(config, key);
      return text ? [...texts[i], text] : texts[i];
    });
    if (numAdded >= 3 && numDifferent(longer) === numDifferent(texts)) continue;
    ++numAdded;
    texts = longer;
  }
  return texts.map((list) => list.join(', '));
}

// Groups by what the names of their runs' variants have in common; those that share that, or have
// nothing in common, by their settings, too.
function nameGroups(groups) {
  const variants = groups.map((group) => {
    const labels = group.points.map(({run}) => run.result.label || run.name);
    return new Set(labels).size === 1 ? labels[0] : commonName(labels);
  });
  groups.forEach((group, i) => {
    const same = groups.filter((other, k) => !variants[i] || variants[k] === variants[i]);
    const own = differencesText(same.map(({config}) => config))[same.indexOf(group)];
    group.name = [variants[i], own].filter(Boolean).join(', ') || 'all runs';
  });
}

// Runs with equal settings but for `keys`, in groups. The runs' x come from `valueOf`; runs without
// one, or without another to compare with, are left out.
function collectGroups(runs, keys, valueOf) {
  const groups = new Map();
  for (const run of listed(runs)) {
    const x = valueOf(run);
    if (!Number.isFinite(x)) continue;
    const config = {...run.settings, backend: run.result.backend};
    for (const key of keys) delete config[key];
    const identity = JSON.stringify(Object.entries(config).sort());
    if (!groups.has(identity)) groups.set(identity, {config, points: []});
    groups.get(identity).points.push({x, run});
  }
  return [...groups.values()].filter((group) =>
    new Set(group.points.map((point) => point.x)).size > 1);
}

// Names the groups after what tells them from each other, and gives those with selected runs a
// style each, then those with the most goodput, as many as there are colours. The others are grey.
function styledGroups(groups) {
  for (const group of groups) group.points.sort((a, b) => a.x - b.x);
  nameGroups(groups);
  const numSelected = (group) => group.points.filter(({run}) => run.isSelected).length;
  const goodput = (group) => d3.max(group.points, ({run}) => run.result.request_goodput || 0);
  const ranked = [...groups].sort((a, b) =>
    numSelected(b) - numSelected(a) || goodput(b) - goodput(a));
  const first = ranked.slice(0, kLight.runs.length);
  const shown = groups.filter((group) => first.includes(group));
  shown.forEach((group, i) => { group.style = styleOf(i); });
  // The grey ones first, so that they lie below.
  const all = [...groups.filter((group) => !group.style), ...shown];
  for (const group of all) {
    Object.assign(group, group.style
      ? {color: group.style.color, dash: group.style.dash, marker: group.style.marker}
      : {color: theme().other, dash: '', marker: d3.symbolCircle, isGrey: true});
  }
  return all;
}

const groupRuns = (runs, keys, valueOf) => styledGroups(collectGroups(runs, keys, valueOf));

// The legend's items of groups; one for all that are grey.
function groupItems(groups) {
  const items = groups.filter(({isGrey}) => !isGrey).map((g) => ({text: g.name, ...g}));
  const numGrey = groups.length - items.length;
  if (numGrey > 0) {
    items.push({text: `${numGrey} other setting${numGrey > 1 ? 's' : ''}: select a run of one`,
      color: theme().other, dash: '', marker: d3.symbolCircle});
  }
  return items;
}

// A scale over positive values: logarithmic where they span more than a factor of 12.
function latencyScale(values, range) {
  const positive = values.filter((v) => v > 0);
  const low = d3.min(positive) || 0.1, high = d3.max(positive) || 1;
  const isLog = high / low > 12;
  const scale = isLog ? d3.scaleLog().domain([low / 1.4, high * 1.5])
    : d3.scaleLinear().domain([0, high * 1.12]);
  return {scale: scale.range(range), isLog};
}

// Panels side by side, below each other where it is narrow.
function panelPlaces(figure, count, top, height) {
  const isWide = figure.width > 700;
  const cell = isWide ? figure.width / count : figure.width;
  return d3.range(count).map((k) => {
    const x = isWide ? k * cell : 0;
    const y = top + (isWide ? 0 : k * (height + 84));
    return {left: x + 60, right: x + cell - 16, top: y, bottom: y + height};
  });
}
const panelsHeight = (width, count, height) =>
  (width > 700 ? height : count * height + (count - 1) * 84) + 52;

// Where the lines of a quantity will be, for labels to stay away from.
function noteGroupLines(panel, groups, valueOf) {
  for (const group of groups) {
    const drawn = group.points.filter((p) => Number.isFinite(valueOf(p.run)));
    panel.boxes.push(...lineBoxes(
      drawn.map((p) => ({x: panel.x(p.x), y: panel.y(valueOf(p.run))}))));
  }
}

// Lines with markers of one quantity over x, a line a group. Where not all runs are selected, the
// markers of those that are have a rim.
function paintGroupLines(figure, panel, groups, valueOf, style = {}) {
  const line = d3.line().defined((p) => Number.isFinite(valueOf(p.run)))
    .x((p) => panel.x(p.x)).y((p) => panel.y(valueOf(p.run)));
  const hasOthers = groups.some(({points}) => points.some(({run}) => !run.isSelected));
  for (const group of groups) {
    const color = style.color || group.color;
    figure.svg.append('path').attr('d', line(group.points)).attr('fill', 'none')
      .attr('stroke', color).attr('stroke-width', group.isGrey ? 1 : 2)
      .attr('stroke-dasharray', style.dash === undefined ? group.dash : style.dash);
    for (const point of group.points) {
      const value = valueOf(point.run);
      if (!Number.isFinite(value)) continue;
      const isRimmed = hasOthers && point.run.isSelected;
      figure.svg.append('path')
        .attr('d', symbolPath(style.marker || group.marker, group.isGrey ? 26 : isRimmed ? 90 : 56))
        .attr('transform', `translate(${panel.x(point.x)},${panel.y(value)})`)
        .attr('fill', style.isHollow ? theme().panel : color)
        .attr('stroke', isRimmed ? theme().text : color).attr('stroke-width', 1.6);
      panel.points.push({x: panel.x(point.x), y: panel.y(value), run: point.run});
    }
  }
}

function runLines(run) {
  return kTable.lists.point.filter((key) => Number.isFinite(run.result[key]))
    .map((key) => [wordsOf(key), figureText(key, run.result[key])]);
}

function hoverPoints(panel, x, y) {
  let best = null, bestDistance = 28;
  for (const point of panel.points) {
    const distance = Math.hypot(point.x - x, point.y - y);
    if (distance < bestDistance) { best = point; bestDistance = distance; }
  }
  return best && {title: best.run.name, lines: runLines(best.run), run: best.run,
    marks: [{x: best.x, y: best.y, r: 8}]};
}

// ---- Against chunk size or budget ----

const kChunkKeys = ['prefill_chunk_size', 'max_num_batched_tokens', 'long_prefill_token_threshold',
  'chunked_prefill_size', 'chunk_size', 'max_num_tokens', 'n_batch', 'n_ubatch'];

// Lines over the size of a step or chunk, whatever the policy of each calls it. The setting that
// most runs vary comes first, and no run is in two lines.
function sweptChunks(runs) {
  const collect = (key, among) => collectGroups(among, [`scheduler.${key}`],
    (run) => at(run.config, `scheduler.${key}`));
  const size = (groups) => d3.sum(groups, (group) => group.points.length);
  const keys = kChunkKeys.map((key) => ({key, size: size(collect(key, runs))}))
    .filter((entry) => entry.size > 0).sort((a, b) => b.size - a.size).map(({key}) => key);
  const placed = new Set();
  const used = [];
  const collected = [];
  for (const key of keys) {
    const groups = collect(key, runs.filter((run) => !placed.has(run)));
    if (groups.length > 0) used.push(key);
    for (const {run} of groups.flatMap((group) => group.points)) placed.add(run);
    collected.push(...groups);
  }
  const others = runs.filter((run) => !placed.has(run));
  return {keys: used, groups: styledGroups(collected), others};
}

// A dotted line for each run whose size nothing is compared with, and its name.
function paintReferences(figure, panel, runs, valueOf, colors) {
  const drawn = runs.filter((run) => Number.isFinite(valueOf(run)));
  panel.boxes.push(...drawn.map((run) => levelBox(panel, panel.y(valueOf(run)))));
  for (const run of drawn) {
    const y = panel.y(valueOf(run));
    figure.svg.append('line').attr('x1', panel.left).attr('x2', panel.right).attr('y1', y)
      .attr('y2', y).attr('stroke', run.color).attr('stroke-dasharray', '2 3');
    const places = [y - 4, y + 13].flatMap((row) =>
      d3.range(panel.left + 4, panel.right, 8).map((x) => ({x, y: row, anchor: 'start'})));
    const text = shortened(`p99 of ${run.name}`, panel.right - panel.left - 8);
    placedLabel(figure, panel, places, text, run.color, colors);
  }
}

function paintChunks(runs, {keys, others: all}, figure, colors) {
  const {groups} = sweptChunks(runs);
  const others = listed(all).length > 3 ? [] : listed(all);  // more would hide the lines
  const items = groups.length > 1 ? groupItems(groups)
    : [{text: 'p99', color: colors.prefill, dash: '', marker: d3.symbolCircle},
      {text: 'p50', color: colors.decode, dash: '6 3', marker: d3.symbolSquare}];
  const legend = drawLegend(figure, items, colors, 60);
  const places = panelPlaces(figure, 2, legend + 26, fitted(260));
  const xs = [...new Set(groups.flatMap((g) => g.points.map((p) => p.x)))].sort((a, b) => a - b);
  ['ttft', 'itl'].forEach((metric, k) => {
    const get = (name) => (run) => run.result[`${name}_${metric}_ms`];
    const limit = sharedSlo(runs, metric);
    const values = groups.flatMap((g) => g.points.flatMap((p) => [get('p50')(p.run),
      get('p99')(p.run)])).concat(others.map(get('p99')), limit == null ? [] : [limit]);
    const {scale, isLog} = latencyScale(values, [places[k].bottom, places[k].top]);
    const panel = addPanel(figure, {...places[k], points: [], boxes: [], y: scale,
      x: d3.scaleLog().base(2).domain(figure.view.now)
        .range([places[k].left, places[k].right])});
    const [low, high] = figure.view.now;
    const ticks = [];
    for (const x of xs.filter((v) => v >= low && v <= high)) {
      if (!ticks.length || panel.x(x) - panel.x(ticks[ticks.length - 1]) > 38) ticks.push(x);
    }
    axisBottom(figure, panel, {ticks, format: grouped,
      label: keys.length > 1 ? 'tokens of a step or chunk' : `${keys[0]}, tokens`}, colors);
    axisLeft(figure, panel, {ticks: isLog ? logTicks(scale, fitted(260)) : null,
      format: (v) => grouped(+v.toPrecision(3)),
      label: blockOf(`p99_${metric}_ms`) +
        (groups.length > 1 ? ' (p99 solid, p50 hollow)' : '')},
      colors);
    const inColor = groups.filter(({isGrey}) => !isGrey);
    noteGroupLines(panel, inColor, get('p50'));
    noteGroupLines(panel, groups, get('p99'));
    if (limit != null) {
      panel.boxes.push(levelBox(panel, panel.y(limit)));
      limitLine(figure, panel, {y: limit, text: `SLO ${limit} ms`}, colors);
    }
    paintReferences(figure, panel, others, get('p99'), colors);
    const isOne = groups.length === 1;
    paintGroupLines(figure, panel, inColor, get('p50'), isOne
      ? {color: colors.decode, dash: '6 3', marker: d3.symbolSquare} : {isHollow: true});
    paintGroupLines(figure, panel, groups, get('p99'), isOne
      ? {color: colors.prefill, dash: '', marker: d3.symbolCircle} : {});
    markBestGoodput(figure, panel, inColor, get('p99'), k === 1, colors);
  });
}

// Rings the best of each set of runs that compare, and names the one where there is one set.
function markBestGoodput(figure, panel, groups, valueOf, isNamed, colors) {
  const points = groups.flatMap((g) => g.points)
    .filter((p) => p.run.result.request_goodput != null && Number.isFinite(valueOf(p.run)));
  const sets = comparedSets(points.map((p) => p.run));
  let point, x, y;
  for (const set of sets) {
    const best = d3.max(set, (run) => run.result.request_goodput);
    point = points.find((p) => set.includes(p.run) && p.run.result.request_goodput === best);
    x = panel.x(point.x);
    y = panel.y(valueOf(point.run));
    figure.svg.append('circle').attr('cx', x).attr('cy', y).attr('r', 9).attr('fill', 'none')
      .attr('stroke', colors.text).attr('stroke-width', 1.6);
  }
  if (!isNamed || sets.length !== 1) return;
  const sides = [{x: x + 13, anchor: 'start'}, {x: x - 13, anchor: 'end'}];
  if (x > (panel.left + panel.right) / 2) sides.reverse();
  const text = shortened(`most goodput: ${groups.length > 1 ? point.run.name : grouped(point.x)}`,
    panel.right - panel.left - 8);
  sides.push({x: panel.right - 4, anchor: 'end'}, {x: panel.left + 4, anchor: 'start'});
  const places = [22, 36, 50, 64, -14, -28].flatMap((dy) =>
    sides.map((side) => ({...side, y: y + dy})));
  placedLabel(figure, panel, places, text, colors.text, colors);
}

function chunkFigure(allRuns) {
  const runs = allRuns.filter((run) => run.result.completed > 0);
  const swept = sweptChunks(runs);
  if (swept.groups.length === 0) return null;
  const points = swept.groups.flatMap((group) => group.points);
  const xs = points.map((point) => point.x);
  const isOneSet = incomparableBecause(points.map((point) => point.run)) === '';
  return new Figure({
    id: 'chunks',
    title: swept.keys.length > 1 ? 'Latency against the size of a step or chunk'
      : `Latency against ${swept.keys[0]}`,
    view: new View([d3.min(xs) / 1.25, d3.max(xs) * 1.25]),
    lead: 'Smaller steps improve cadence and increase the time to first token. ' +
      `A ring marks the most goodput${isOneSet ? '' : ' of the comparable runs'}.` +
      (swept.keys.length > 1 ? ` The size is ${swept.keys.join(' or ')}, by policy.` : ''),
    draw: {
      height: (width) => {
        const {groups} = sweptChunks(runs);
        return legendLayout(groups.length > 1 ? groupItems(groups) : [{text: 'p99'}], width, 60)
          .height + 26 + panelsHeight(width, 2, fitted(260));
      },
      paint: (self, context, colors) => paintChunks(runs, swept, self, colors),
    },
    hover: (self, panel, x, y) => hoverPoints(panel, x, y), picks: true,
  });
}

// ---- Against load ----

const kLoadKeys = ['workload.arrivals.rate', 'workload.arrivals.concurrency',
  'workload.num_requests', 'workload.trace.rate_scale', 'workload.trace.speedup'];
function loadOf(run) {
  const rate = run.result.request_rate;
  return typeof rate === 'number' ? rate : run.result.max_concurrency;
}

const isOpenLoop = (run) => typeof run.result.request_rate === 'number';

// Good requests per second: of the arrivals where requests arrive at a rate, so that the end of a
// short run does not count as missed requests; else of the run.
const goodRate = ({result}) => (typeof result.request_rate === 'number' &&
  result.slo_attainment != null ? result.slo_attainment * result.request_rate
  : result.request_goodput);

// The share of an open-loop run that lies behind its arrivals.
function drainShare(run) {
  const {num_prompts: count, request_rate: rate, duration} = run.result;
  return isOpenLoop(run) && duration > 0 ? Math.max(0, 1 - count / rate / duration) : 0;
}
// A run that ends soon after its first requests do does not show what a server sustains.
const isShortRun = (run) => drainShare(run) > 0.15;

// Both axes begin at 0, but loads of several orders of magnitude are on a logarithmic one.
function loadScale(figure) {
  const [low, high] = figure.view.full;
  return low > 0 && high / low > 24 ? d3.scaleLog() : d3.scaleLinear();
}

// Where every request is good: goodput as high as the load.
function paintDiagonal(figure, panel, colors) {
  const [low, high] = figure.view.now;
  const end = Math.min(high, panel.y.domain()[1]);
  if (end <= low) return;
  const points = d3.range(41).map((i) => low + (end - low) * i / 40);
  figure.svg.append('path').attr('fill', 'none').attr('stroke', colors.axis)
    .attr('stroke-dasharray', '2 4')
    .attr('d', d3.line().x((v) => panel.x(v)).y((v) => panel.y(v))(points));
  const isRight = panel.x(end) - panel.left > 140;
  const sides = [{x: panel.x(end) + (isRight ? -6 : 8), anchor: isRight ? 'end' : 'start'}];
  placedLabel(figure, panel, [14, 28, 44].flatMap((dy) => sides.map((side) =>
    ({...side, y: panel.y(end) + dy}))), 'all requests good', colors.muted, colors);
}

function paintLoad(runs, figure, colors) {
  const groups = loadGroups(runs);
  const legend = drawLegend(figure, groupItems(groups), colors, 60);
  const places = panelPlaces(figure, 2, legend + 26, fitted(260));
  const shown = groups.flatMap((g) => g.points.map((p) => p.run));
  const isRate = shown.some(isOpenLoop);
  const name = isRate ? 'request rate, 1/s' : 'concurrent requests';
  const quantities = [
    {label: `good requests/s${isRate ? ' of arrivals' : ''}`, of: goodRate,
      domain: [0, (d3.max(shown, goodRate) || 1) * 1.1], format: (v) => grouped(v)},
    {label: 'requests within the SLO', of: (run) => run.result.slo_attainment,
      domain: [0, 1.03], format: (v) => `${Math.round(v * 100)} %`}];
  quantities.forEach((quantity, k) => {
    const place = places[k];
    const panel = addPanel(figure, {...place, points: [], boxes: [],
      x: loadScale(figure).domain(figure.view.now).range([place.left, place.right]),
      y: d3.scaleLinear().domain(quantity.domain).range([place.bottom, place.top])});
    axisBottom(figure, panel, {format: axisNumber, label: name,
      ticks: loadScale(figure).base ? logTicks(panel.x, place.right - place.left) : null}, colors);
    axisLeft(figure, panel, {ticks: k === 1 ? [0, 0.25, 0.5, 0.75, 1] : null,
      format: quantity.format, label: quantity.label}, colors);
    noteGroupLines(panel, groups, quantity.of);
    if (k === 0 && isRate) paintDiagonal(figure, panel, colors);
    if (k === 1) limitLine(figure, panel, {y: 0.99, text: '99 %'}, colors);
    paintGroupLines(figure, panel, groups, quantity.of);
  });
}

const loadGroups = (runs) => groupRuns(runs.filter((run) => run.result.request_goodput != null),
  kLoadKeys, loadOf);

// How the rates of the figure differ from the table's, and which runs are too short.
function loadCaption(groups) {
  const runs = groups.flatMap((g) => g.points.map((p) => p.run)).filter(isOpenLoop);
  if (runs.length === 0) return 'Goodput is per second of the run.';
  const most = d3.max(runs, drainShare);
  const short = runs.filter(isShortRun);
  return 'Good requests per second of arrivals: the share within the SLO times the request rate. ' +
    'The table\'s goodput is per second of the whole run, as vLLM\'s benchmark has it; that ' +
    `includes the time after the last arrival, up to ${formatNumber(100 * most)} % of a run here.` +
    (short.length === 0 ? '' : ` ${plural(short.length, 'run')} of ${grouped(runs.length)} ` +
      'spend more than 15 % there: too short to show that the load is sustained.');
}

function loadFigure(runs) {
  const groups = loadGroups(runs);
  if (groups.length === 0) return null;
  const loads = groups.flatMap((group) => group.points.map((point) => point.x));
  const [least, most] = d3.extent(loads);
  const isOpen = groups.some((g) => g.points.some((p) => isOpenLoop(p.run)));
  return new Figure({
    id: 'load', title: 'Goodput against load',
    view: new View(least > 0 && most / least > 20 ? [least / 1.15, most * 1.15] : [0, most * 1.06]),
    lead: 'Requests that meet every limit of the SLO, per second and as a share.' +
      (isOpen ? ' A line leaves the diagonal where requests miss the SLO.' : ''),
    draw: {
      height: (width) => legendLayout(groupItems(loadGroups(runs)), width, 60).height + 26 +
        panelsHeight(width, 2, fitted(260)),
      paint: (self, context, colors) => paintLoad(runs, self, colors),
    },
    hover: (self, panel, x, y) => hoverPoints(panel, x, y), picks: true,
    caption: loadCaption(groups),
  });
}

// ---- Throughput against p99 ITL ----

// Of runs that compare, those that no other beats in both; lowest latency first. A thousandth more
// is no more.
function paretoFront(runs, x, y) {
  const front = [];
  for (const run of [...runs].sort((a, b) => x(a) - x(b) || y(b) - y(a))) {
    if (front.length === 0 || y(run) > 1.001 * y(front[front.length - 1])) front.push(run);
  }
  return front;
}

// A scale of rates: from 0 or, where they are close to each other, from below the least;
// logarithmic where they span more than a factor of 12.
function rateScale(values, range) {
  const {scale, isLog} = latencyScale(values, range);
  if (isLog && values.every((value) => value > 0)) return scale;
  const high = d3.max(values) || 1, low = d3.min(values) || 0;
  const pad = Math.max((high - low) * 0.15, high * 0.04);
  return d3.scaleLinear().domain([Math.max(0, low - pad), high + pad]).range(range);
}

// Names beside their points, away from points and names, and where there is room from the lines.
function nameParetoPoints(figure, panel, named, colors, textOf = (run) => run.name) {
  const taken = panel.points.map(({x, y}) =>
    ({left: x - 7, right: x + 7, top: y - 7, bottom: y + 7}));
  taken.push(...panel.boxes.filter(({isText}) => isText));
  const offsets = [[11, 4, 'start'], [-11, 4, 'end'], [0, -13, 'middle'], [0, 21, 'middle'],
    [11, -11, 'start'], [11, 19, 'start'], [-11, -11, 'end'], [-11, 19, 'end']];
  for (const {x, y, run, color} of named) {
    const text = textOf(run);
    const isClear = ([dx, dy, anchor], boxes) => {
      const box = textBox(x + dx, y + dy, text, anchor);
      return box.left >= panel.left && box.right <= panel.right && box.top >= panel.top - 8 &&
        !boxes.some((other) => boxesMeet(box, other));
    };
    const place = offsets.find((offset) => isClear(offset, taken.concat(panel.boxes))) ||
      offsets.find((offset) => isClear(offset, taken));
    if (!place) continue;
    const [dx, dy, anchor] = place;
    taken.push(textBox(x + dx, y + dy, text, anchor));
    label(figure.svg.append('g'), x + dx, y + dy, text, color || run.color, colors, anchor);
  }
}

function paintPareto(runs, state, figure, colors) {
  const x = (run) => run.result.p99_itl_ms, y = (run) => run.result[state.rate];
  // Runs in colour come last, so that they lie above.
  const shown = listed(runs).filter((run) => x(run) > 0 && Number.isFinite(y(run)))
    .sort((a, b) => a.isSelected - b.isSelected);
  const place = {left: 70, right: figure.width - 18, top: 34, bottom: figure.height - 48};
  const panel = addPanel(figure, {...place, points: [], boxes: [],
    x: d3.scaleLog().domain(figure.view.now).range([place.left, place.right]),
    y: rateScale(shown.map(y), [place.bottom, place.top])});
  axisBottom(figure, panel, {ticks: logTicks(panel.x, place.right - place.left),
    format: (ms) => grouped(+ms.toPrecision(3)),
    label: `${axisName('p99_itl_ms')} (further left is steadier)`}, colors);
  axisLeft(figure, panel, {ticks: panel.y.base ? logTicks(panel.y, place.bottom - place.top) : null,
    format: (v) => grouped(+v.toPrecision(5)),
    label: `${axisName(state.rate)} (higher is more)`}, colors);
  const limit = sharedSlo(runs, 'itl');
  if (limit != null) {
    const p = panel.x(limit);
    panel.boxes.push({left: p - 1, right: p + 1, top: panel.top, bottom: panel.bottom});
    limitLine(figure, panel, {x: limit, text: `SLO ${limit} ms`}, colors);
  }
  const fronts = comparedSets(shown).map((set) => paretoFront(set, x, y));
  for (const front of fronts.filter(({length}) => length > 1)) {
    const corners = front.flatMap((run, i) => {
      const right = {x: panel.x(x(run)), y: panel.y(y(run))};
      return i === 0 ? [right] : [{x: right.x, y: panel.y(y(front[i - 1]))}, right];
    });
    panel.boxes.push(...lineBoxes(corners));
    const path = d3.line().x((p) => p.x).y((p) => p.y)(corners);
    figure.svg.append('path').attr('class', 'front').attr('d', path).attr('fill', 'none')
      .attr('stroke', colors.axis).attr('stroke-width', 2).attr('stroke-dasharray', '6 4');
  }
  const unbeaten = fronts.flat();
  for (const run of shown) {
    const px = panel.x(x(run)), py = panel.y(y(run));
    if (px < panel.left - 1 || px > panel.right + 1) continue;
    const isFront = unbeaten.includes(run);
    figure.svg.append('path').attr('d', symbolPath(run.marker,
      (isFront ? 110 : 66) * (run.isSelected ? 1 : 0.45)))
      .attr('class', isFront ? 'unbeaten' : null)
      .attr('transform', `translate(${px},${py})`).attr('fill', run.color)
      .attr('fill-opacity', isFront || shown.length > 24 ? 1 : 0.55)
      .attr('stroke', isFront ? colors.text : 'none').attr('stroke-width', 1.4);
    panel.points.push({x: px, y: py, run});
  }
  nameParetoPoints(figure, panel, panel.points.filter(({run}) => run.isSelected), colors);
}

function paretoLead(runs) {
  const reason = incomparableBecause(runs);
  if (!reason) return 'No run beats the outlined ones in both. The dashed line is their front.';
  return comparedSets(runs).length === 0 ? `No run is marked as unbeaten: ${reason}.`
    : 'No comparable run beats the outlined ones in both. Each dashed line is a ' +
      `front. Not all compare: ${reason}.`;
}

function paretoFigure(runs) {
  const usable = runs.filter((run) => run.result.p99_itl_ms > 0);
  if (usable.length < 2) return null;
  const state = {rate: 'output_throughput'};
  const xs = usable.map((run) => run.result.p99_itl_ms);
  const figure = new Figure({
    id: 'pareto', title: 'Throughput against p99 ITL',
    view: new View([d3.min(xs) / 1.5, d3.max(xs) * 1.6]),
    lead: paretoLead(usable),
    draw: {height: () => fitted(380),
      paint: (self, context, colors) => paintPareto(runs, state, self, colors)},
    hover: (self, panel, x, y) => hoverPoints(panel, x, y), picks: true,
  });
  const rates = kTable.lists.rate
    .filter((key) => usable.every((run) => Number.isFinite(run.result[key])));
  figure.addChoice('throughput in', rates.map((key) => [key, axisName(key)]),
    (value) => { state.rate = value; });
  return figure;
}
