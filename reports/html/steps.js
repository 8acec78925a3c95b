// SPDX-License-Identifier: Apache-2.0
// Figures of a run's steps: what each was made of and took; cache, queue and preemptions.

// Calls paint(x, least, greatest, last) for each pixel column that has points of sorted `times`.
function eachColumn(panel, times, values, paint) {
  const [low, high] = panel.x.domain();
  const begin = Math.max(0, lowerBound(times, low) - 1);
  const end = Math.min(times.length, lowerBound(times, high) + 1);
  for (let i = begin; i < end;) {
    const column = Math.round(panel.x(times[i]));
    let least = values[i], greatest = values[i], k = i;
    for (; k < end && Math.round(panel.x(times[k])) === column; ++k) {
      least = Math.min(least, values[k]);
      greatest = Math.max(greatest, values[k]);
    }
    paint(Math.min(panel.right, Math.max(panel.left, column)), least, greatest, values[k - 1]);
    i = k;
  }
}

// A line that holds each value until the next.
function paintStepLine(context, panel, times, values, color, dash, width = 1.6) {
  context.save();
  context.beginPath();
  context.rect(panel.left, panel.top - 2, panel.right - panel.left, panel.bottom - panel.top + 4);
  context.clip();
  context.beginPath();
  let before = null;
  eachColumn(panel, times, values, (x, least, greatest, last) => {
    if (before === null) context.moveTo(x, panel.y(least));
    else context.lineTo(x, before);
    if (greatest !== least) {
      context.lineTo(x, panel.y(least));
      context.lineTo(x, panel.y(greatest));
    }
    before = panel.y(last);
    context.lineTo(x, before);
  });
  context.strokeStyle = color;
  context.lineWidth = width;
  context.setLineDash(dash ? dash.split(' ').map(Number) : []);
  context.stroke();
  context.restore();
}

// When the steps began: what their plans say holds from there on.
function startsOf(steps) {
  return steps.start || (steps.start = steps.end.map((end, i) => end - steps.time[i]));
}
// The last step that had begun by `us`, or -1.
function stepBefore(steps, us) { return d3.bisectRight(startsOf(steps), us) - 1; }

function timePanel(figure, top, height, y, extra = {}) {
  const left = 58, right = figure.width - 14;
  // A figure of one run ends with it.
  const domain = figure.ownEnd && !figure.view.isZoomed ? [0, figure.ownEnd] : figure.view.now;
  return addPanel(figure, {left, right, top, bottom: top + height,
    x: d3.scaleLinear().domain(domain).range([left, right]),
    y: y.breakAt === undefined ? y.range([top + height, top]) : y, ...extra});
}

function timeAxis(figure, panel, isLast, colors) {
  axisBottom(figure, panel, {format: isLast ? (us) => `${+(us / 1e6).toPrecision(7)}` : () => '',
    label: isLast ? 'time, s' : ''}, colors);
}

// ---- Step composition ----

function budgetOf(run) {
  for (const key of ['max_num_batched_tokens', 'max_num_tokens', 'chunked_prefill_size',
    'chunk_size', 'n_batch']) {
    const value = at(run.config, `scheduler.${key}`);
    if (typeof value === 'number' && value > 0) return {key, value};
  }
  return null;
}

// Stacked bars of every step in sight: the lower part over the whole.
function paintStepBars(context, panel, steps, lower, upper, colors) {
  const [low, high] = panel.x.domain();
  const begin = lowerBound(steps.end, low);
  const end = Math.min(steps.end.length, lowerBound(steps.end, high) + 1);
  context.save();
  context.beginPath();
  context.rect(panel.left, panel.top, panel.right - panel.left, panel.bottom - panel.top);
  context.clip();
  for (const isUpper of [true, false]) {
    context.fillStyle = isUpper ? colors.prefill : colors.decode;
    for (let i = begin; i < end; ++i) {
      const value = isUpper ? upper(i) : lower(i);
      if (!(value > 0) || (isUpper && value === lower(i))) continue;
      const x0 = panel.x(steps.end[i] - steps.time[i]);
      const y = panel.y(value);
      const width = Math.max(1, panel.x(steps.end[i]) - x0 - (high - low < 2e5 ? 0.7 : 0));
      context.fillRect(x0, y, width, panel.bottom - y);
    }
  }
  context.restore();
}

function paintComposition(state, figure, context, colors) {
  const run = state.run;
  const {steps} = run.detail;
  figure.ownEnd = (d3.max(steps.end) || 1) * 1.005;
  drawLegend(figure, [{text: 'decode', color: colors.decode, box: true},
    {text: 'prefill', color: colors.prefill, box: true}], colors, 58);
  const height = (figure.height - 44 - 34 - 2 * 26) / 2;
  const mostTokens = d3.max(d3.range(steps.end.length), (i) => steps.prefill[i] + steps.decode[i]);
  const budget = budgetOf(run);
  const isNear = budget && budget.value < mostTokens * 3;
  const topTokens = Math.max(mostTokens, isNear ? budget.value : 0);
  const tokens = timePanel(figure, 52, height, d3.scaleLinear().domain([0, topTokens * 1.08]),
    {kind: 'tokens'});
  timeAxis(figure, tokens, false, colors);
  axisLeft(figure, tokens, {format: axisNumber, label: 'tokens in the step'}, colors);
  paintStepBars(context, tokens, steps, (i) => steps.decode[i],
    (i) => steps.decode[i] + steps.prefill[i], colors);
  if (budget) {
    limitLine(figure, tokens, {y: budget.value,
      text: `${budget.key} ${grouped(budget.value)}`}, colors);
  }
  const time = timePanel(figure, tokens.bottom + 34, height,
    d3.scaleLinear().domain([0, d3.max(steps.time) * 1.08]), {kind: 'time'});
  timeAxis(figure, time, true, colors);
  axisLeft(figure, time, {format: (us) => `${+(us / 1000).toPrecision(4)}`,
    label: 'step time, ms'}, colors);
  paintStepBars(context, time, steps, (i) => steps.decode_time[i], (i) => steps.time[i], colors);
}

function hoverStep(run, panel, x) {
  const {steps} = run.detail;
  const us = panel.x.invert(x);
  let i = lowerBound(steps.end, us);
  if (i >= steps.end.length) i = steps.end.length - 1;
  if (i < 0) return null;
  const colors = theme();
  const isIdle = us < steps.end[i] - steps.time[i] - (panel.x.invert(x + 3) - us);
  const lines = isIdle ? [] : [
    ['decode tokens', grouped(steps.decode[i]), colors.decode],
    ['prefill tokens', grouped(steps.prefill[i]), colors.prefill],
    ['step time', formatUs(steps.time[i])],
    ['its decodes alone', formatUs(steps.decode_time[i]), colors.decode]];
  lines.push(['running', grouped(steps.running[i])], ['waiting', grouped(steps.waiting[i])]);
  return {title: `${isIdle ? 'between steps' : `step ${grouped(steps.position[i])}`}, ` +
    formatSeconds(us), lines, marks: [{x}]};
}

// Runs whose steps are known, selected or not.
const withSteps = (runs) => runs.filter(({detail}) =>
  detail && detail.hasSteps && detail.steps.end.length > 0);

function compositionFigure(runs, view) {
  const rows = withSteps(runs);
  if (rows.length === 0) return null;
  const first = rows.filter((run) => run.isSelected);
  const state = {run: first.find(budgetOf) || first[first.length - 1] || rows[0]};
  const figure = new Figure({
    id: 'composition', title: 'Step composition: what the device computed', view, hasCanvas: true,
    lead: 'One bar per step, as wide as the step was long. Above: its tokens and the budget. ' +
      'Below: its time, and the time that the decodes would have taken alone.',
    draw: {height: () => fitted(440),
      paint: (self, context, colors) => paintComposition(state, self, context, colors)},
    hover: (self, panel, x) => hoverStep(state.run, panel, x),
    hint: 'Zoom in until single steps show.',
  });
  const select = figure.addChoice('run', runNames(rows),
    (value) => { state.run = runs[Number(value)]; });
  figure.show = (run) => { if (rows.includes(run)) state.run = run; };
  figure.prepare = () => {
    select.value = String(state.run.index);
    figure.caption.textContent = keptNote([state.run], 'steps').trim();
  };
  return figure;
}

// ---- KV cache, running, waiting, preemptions ----

function memorySeries(rows) {
  const hasBlocks = rows.every((run) => run.result.num_kv_blocks > 0);
  const series = [
    {label: hasBlocks ? 'KV cache in use, %' : 'KV blocks in use',
      isShare: hasBlocks, text: (v) => (hasBlocks ? `${formatNumber(v, 1)} %` : grouped(v)),
      of: (run) => (hasBlocks
        ? run.detail.steps.blocks.map((b) => 100 * b / run.result.num_kv_blocks)
        : run.detail.steps.blocks)},
    {label: 'requests running', text: grouped, of: (run) => run.detail.steps.running},
    {label: 'requests waiting', text: grouped, of: (run) => run.detail.steps.waiting}];
  if (rows.some((run) => run.result.num_preemptions > 0)) {
    series.push({label: 'preemptions so far', text: grouped,
      of: (run) => run.detail.steps.preempted});
  }
  for (const one of series) {
    const known = new Map();
    one.valuesOf = (run) => {
      const {steps} = run.detail;
      return known.get(steps) || known.set(steps, one.of(run)).get(steps);
    };
  }
  return series;
}

function paintMemory(runs, series, figure, context, colors) {
  const shown = stepped(runs);
  const legend = drawLegend(figure, runItems(runs), colors, 58);
  const space = 34;
  const height = (figure.height - legend - 44) / series.length - space;
  series.forEach((one, k) => {
    const maxima = shown.map((run) => d3.max(one.valuesOf(run)));
    const most = Math.max(d3.max(maxima) || 1, one.isShare ? 1 : 4);
    const top = legend + 24 + k * (height + space);
    const breakAt = breakOf(maxima);
    const panel = timePanel(figure, top, height, breakAt === null || breakAt < 4
      ? d3.scaleLinear().domain([0, most * 1.06]).nice(3)
      : brokenScale(most, breakAt, top, top + height));
    timeAxis(figure, panel, k === series.length - 1, colors);
    axisLeft(figure, panel, {format: axisNumber, label: one.label,
      ticks: panel.y.breakAt === undefined ? panel.y.ticks(3) : brokenTicks(panel.y, height)},
    colors);
    for (const run of shown) {
      paintStepLine(context, panel, startsOf(run.detail.steps), one.valuesOf(run), run.color,
        run.dash);
    }
    paintBreak(figure, panel, colors);
  });
}

function hoverMemory(runs, series, panel, x) {
  const us = panel.x.invert(x);
  const lines = [];
  for (const run of stepped(runs)) {
    const i = stepBefore(run.detail.steps, us);
    if (i < 0) continue;
    lines.push([run.name, '', run.color]);
    for (const one of series) lines.push([`- ${one.label}`, one.text(one.valuesOf(run)[i])]);
  }
  return lines.length ? {title: formatSeconds(us), lines, marks: [{x}]} : null;
}

function memoryFigure(runs, view) {
  const rows = withSteps(runs);
  if (rows.length === 0) return null;
  const series = memorySeries(rows);
  const figure = new Figure({
    id: 'memory', title: 'KV cache and queue over time', view, hasCanvas: true,
    lead: 'After each plan: blocks in use, requests running and waiting' +
      (series.length > 3 ? ', preemptions.' : '. No request was preempted.'),
    draw: {
      height: (width) => legendLayout(runItems(runs), width, 58).height +
        44 + series.length * fitted(134),
      paint: (self, context, colors) => paintMemory(runs, series, self, context, colors),
    },
    hover: (self, panel, x) => hoverMemory(runs, series, panel, x),
  });
  figure.prepare = () => {
    figure.caption.textContent = keptNote(stepped(runs), 'steps').trim();
  };
  return figure;
}
