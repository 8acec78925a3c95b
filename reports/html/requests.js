// SPDX-License-Identifier: Apache-2.0
// Figures of single requests: their lives over time, and what their first tokens waited for.

const kReasons = ['not ended', 'length', 'stop', 'aborted', 'queue full', 'never fits',
  'step failed', 'server error'];
const isFailed = (reason) => reason >= 3;

// Indices of the drawn requests that were there between low and high.
function requestsInSight(requests, low, high) {
  const rows = [];
  for (let i = 0; i < requests.id.length; ++i) {
    const arrival = requests.arrival[i];
    const end = arrival + Math.max(requests.ended[i], requests.last[i], 1) - 1;
    if (arrival <= high && (end >= low || requests.ended[i] === 0)) rows.push(i);
  }
  return rows;
}

// Marks lie by row; the first of each row.
function firstOfRows(marks, numRows) {
  const first = new Int32Array(numRows + 1);
  for (const row of marks.row) ++first[row + 1];
  for (let i = 0; i < numRows; ++i) first[i + 1] += first[i];
  return first;
}

function requestTimes(requests, i) {
  const time = (column) => (column[i] > 0 ? requests.arrival[i] + column[i] - 1 : null);
  return {arrival: requests.arrival[i], scheduled: time(requests.scheduled),
    first: time(requests.first), last: time(requests.last), ended: time(requests.ended)};
}

function paintRequestBar(context, panel, state, i, y, height, colors) {
  const {requests} = state.run.detail;
  const {arrival, scheduled, first, last, ended} = requestTimes(requests, i);
  const clamp = (us) => Math.max(panel.left, Math.min(panel.right, panel.x(us)));
  const bar = (from, to, color) => {
    if (from === null || to === null || to < from) return;
    const x = clamp(from);
    context.fillStyle = color;
    context.fillRect(x, y, Math.max(0.8, clamp(to) - x), height);
  };
  const end = ended === null ? panel.x.domain()[1] : ended;
  const isUnseen = !state.run.detail.hasSteps && first !== null;  // when it was scheduled
  bar(arrival, isUnseen ? first : scheduled === null ? end : scheduled, colors.queue);
  if (isUnseen) {
    context.globalAlpha = 0.75;
    bar(first, last, colors.decode);
    context.globalAlpha = 1;
  } else if (scheduled !== null) {
    context.globalAlpha = 0.28;
    bar(scheduled, first === null ? end : first, colors.prefill);
    context.globalAlpha = 0.75;
    bar(first, last, colors.decode);
    context.globalAlpha = 1;
  }
  const {prefills, late} = requests;
  for (let k = state.firstChunk[i]; k < state.firstChunk[i + 1]; ++k) {
    bar(prefills.end[k] - prefills.time[k], prefills.end[k], colors.prefill);
  }
  for (let k = state.firstLate[i]; k < state.firstLate[i + 1]; ++k) {
    const isVery = late.time[k] > 2000 * requests.late_ms;
    bar(late.end[k] - late.time[k], late.end[k], isVery ? colors.tooLate : colors.late);
  }
  if (isFailed(requests.reason[i])) {
    context.fillStyle = colors.tooLate;
    context.fillRect(clamp(end) - 1.5, y, 3, height);
  }
}

// Unless somebody zooms: the whole run, or what is around the longest stall (the first requests
// where nobody waited for a token) where that would be too many requests to tell apart.
const kMostBars = 400;
function requestRange({requests, stalls}, view) {
  if (view.isZoomed) return view.now;
  if (requests.id.length <= kMostBars) {
    const end = d3.max(requests.arrival, (arrival, i) => arrival + requests.ended[i]);
    return [0, Math.min(view.full[1], Math.max(1, end) * 1.005)];
  }
  const [low, high] = view.full;
  const {began, gap} = stalls[0] || {began: requests.arrival[0], gap: (high - low) / 20};
  const around = (margin) => [Math.max(low, began - margin), Math.min(high, began + gap + margin)];
  let margin = gap, tooMuch = high - low;
  while (tooMuch - margin > 0.01 * margin) {
    const middle = (margin + tooMuch) / 2;
    if (requestsInSight(requests, ...around(middle)).length <= kMostBars) margin = middle;
    else tooMuch = middle;
  }
  return around(margin);
}

function paintRequests(state, figure, context, colors) {
  const {requests} = state.run.detail;
  const limit = requests.late_ms;
  const {hasSteps} = state.run.detail;
  const legend = drawLegend(figure, [
    {text: hasSteps ? 'queued' : 'until the first token', color: colors.queue, box: true},
    ...(hasSteps
      ? [{text: 'prefill (its chunks darker)', color: colors.prefill, box: true}] : []),
    {text: 'decode', color: colors.decode, box: true},
    {text: `gap > ${limit} ms`, color: colors.late, box: true},
    {text: `gap > ${2 * limit} ms`, color: colors.tooLate, box: true}], colors, 58);
  const left = 58, right = figure.width - 14, top = legend + 20, bottom = figure.height - 44;
  const range = requestRange(state.run.detail, figure.view);
  const rows = requestsInSight(requests, ...range);
  const panel = addPanel(figure, {left, right, top, bottom, rows,
    x: d3.scaleLinear().domain(range).range([left, right]),
    y: d3.scaleLinear().domain([0, Math.max(8, rows.length)]).range([top, bottom])});
  timeAxis(figure, panel, true, colors);
  const ticks = panel.y.ticks(6).filter((t) => Number.isInteger(t) && t < rows.length);
  axisLeft(figure, panel, {ticks, format: (t) => grouped(requests.id[rows[t]]),
    label: 'request, by arrival'}, colors);
  const pitch = (bottom - top) / Math.max(8, rows.length);
  const height = Math.max(0.6, pitch > 4 ? pitch - 1.2 : pitch);
  rows.forEach((i, k) => paintRequestBar(context, panel, state, i, panel.y(k), height, colors));
}

function hoverRequests(state, figure, panel, x, y) {
  const {requests} = state.run.detail;
  const i = panel.rows[Math.floor(panel.y.invert(y))];
  if (i === undefined) return null;
  const colors = theme();
  const {arrival, scheduled, first, last} = requestTimes(requests, i);
  const lines = [['arrived', formatSeconds(arrival)],
    ['prompt', plural(requests.prompt[i], 'token')]];
  if (requests.cached[i] > 0) lines.push(['cached', grouped(requests.cached[i])]);
  if (scheduled !== null) lines.push(['queued', formatUs(scheduled - arrival), colors.queue]);
  if (first !== null) {
    lines.push(['time to first token', formatUs(first - arrival), colors.prefill],
      ...(state.run.detail.hasSteps
        ? [['prefill chunks', grouped(requests.chunks[i])]] : []),
      ['output', plural(requests.output[i], 'token')],
      ['decoding', formatUs(last - first), colors.decode],
      ['longest gap', formatUs(requests.max_gap[i]),
        requests.max_gap[i] > 1000 * requests.late_ms ? colors.late : undefined]);
  }
  if (requests.preempted[i] > 0) lines.push(['preempted', plural(requests.preempted[i], 'time')]);
  lines.push(['ended by', kReasons[requests.reason[i]]]);
  return {title: `request ${grouped(requests.id[i])}`, lines, marks: [{x}]};
}

function drawnNote(run) {
  const {requests, stalls} = run.detail;
  const notes = [];
  if (requests.id.length > kMostBars) {
    notes.push(stalls.length > 0 ? 'Unless zoomed, the time around the longest stall is shown.'
      : 'Unless zoomed, the time of the first requests is shown.');
  }
  if (requests.num_drawn < requests.num_requests) {
    notes.push(`${grouped(requests.num_drawn)} of ${grouped(requests.num_requests)} requests are ` +
      `kept, ${stalls.length > 0 ? 'those around the longest stall' : 'the first'}.`);
  }
  if (requests.prefills.row.length < requests.num_chunks) {
    notes.push(`The largest ${grouped(requests.prefills.row.length)} of ` +
      `${grouped(requests.num_chunks)} chunks are drawn.`);
  }
  if (requests.late.row.length < requests.num_late) {
    notes.push(`The longest ${grouped(requests.late.row.length)} of ` +
      `${grouped(requests.num_late)} late gaps are drawn.`);
  }
  return notes.join(' ');
}

function chooseRequests(state, run) {
  state.run = run;
  const {requests} = run.detail;
  state.firstChunk = firstOfRows(requests.prefills, requests.id.length);
  state.firstLate = firstOfRows(requests.late, requests.id.length);
}

function requestFigure(runs, view) {
  const rows = runs.filter((run) => run.detail && run.detail.requests.id.length > 0);
  if (rows.every((run) => run.detail.hasSteps && run.detail.steps.end.length === 0)) return null;
  const state = {};
  const first = rows.filter((run) => run.isSelected);
  chooseRequests(state, mostStalled(first.length > 0 ? first : rows));
  const figure = new Figure({
    id: 'requests', title: 'Request timeline', view, hasCanvas: true,
    lead: 'One bar per request, from its arrival to its last token. A late gap is as long as the ' +
      'wait; columns of late gaps are stalls of all requests at once.',
    hint: 'Zoom in until single requests show.',
    draw: {height: () => fitted(460),
      paint: (self, context, colors) => paintRequests(state, self, context, colors)},
    hover: (self, panel, x, y) => hoverRequests(state, self, panel, x, y),
  });
  const select = figure.addChoice('run', runNames(rows),
    (value) => { chooseRequests(state, runs[Number(value)]); figure.prepare(); });
  figure.show = (run) => { if (rows.includes(run)) chooseRequests(state, run); };
  figure.prepare = () => {
    select.value = String(state.run.index);
    figure.caption.textContent = drawnNote(state.run);
  };
  return figure;
}

// ---- Parts of the time to first token ----

const kTtftParts = [['front', 'front end', 'host'], ['queue', 'queued', 'waiting'],
  ['own', 'steps with its own chunks', 'prefill'],
  ['rest', 'steps without it, host gaps', 'decode']];

// Groups of requests by TTFT: the share of requests up to each, and mean parts in ms.
function ttftGroups(run) {
  const {size, ttft, front_end: front, queue, own} = run.detail.ttftParts;
  const total = d3.sum(size);
  let before = 0;
  return d3.range(size.length).map((g) => {
    const mean = (sum) => sum / size[g] / 1000;
    const group = {from: before / total, to: (before + size[g]) / total, ttft: mean(ttft[g]),
      front: mean(front[g]), queue: mean(queue[g]), own: mean(own[g])};
    group.rest = Math.max(0, group.ttft - group.front - group.queue - group.own);
    before += size[g];
    return group;
  });
}

// Without a front end, its part is left out.
function partsOf(rows) {
  const hasFront = rows.some(({groups}) => groups.some((group) => group.front > 0));
  return hasFront ? kTtftParts : kTtftParts.slice(1);
}

const kBreakdownSpace = 78;  // between the rows of panels, for their titles and axes
function breakdownColumns(width, count) {
  const most = width < 560 ? 1 : width < 900 && !isPrinting ? 2 : 3;
  return Math.max(1, Math.min(count, most));
}

function paintBreakdown(rows, figure, colors) {
  const parts = partsOf(rows);
  const legend = drawLegend(figure, parts.map(([, text, color]) => ({text,
    color: colors[color], box: true})), colors, 58);
  const columns = breakdownColumns(figure.width, rows.length);
  const cell = (figure.width - 14) / columns;
  const maxima = rows.map(({groups}) => d3.max(groups, (group) => group.ttft) || 1);
  const most = d3.max(maxima);
  const breakAt = figure.isShared ? breakOf(maxima) : null;
  rows.forEach(({run, groups}, k) => {
    const highest = figure.isShared && breakAt === null ? most : maxima[k];
    const left = (k % columns) * cell + 58, right = (k % columns + 1) * cell - 8;
    const height = fitted(168);
    const top = legend + 30 + Math.floor(k / columns) * (height + kBreakdownSpace);
    const bottom = top + height;
    const panel = addPanel(figure, {left, right, top, bottom, run, groups,
      x: d3.scaleLinear().domain(figure.view.now).range([left, right]),
      y: brokenScale(highest, breakAt, top, bottom)});
    axisBottom(figure, panel, {ticks: panel.x.ticks(Math.min(5, (right - left) / 60)),
      format: (p) => `${+(p * 100).toFixed(1)} %`, label: 'requests, shortest TTFT first'}, colors);
    axisLeft(figure, panel, {format: axisNumber,
      ticks: panel.y.breakAt === undefined ? null : brokenTicks(panel.y, height)}, colors);
    const bold = `bold 12.5px ${kFont}`, unit = ': TTFT, ms';
    const name = shortened(run.name, right - left + 44 - textWidth(unit, bold), bold);
    label(figure.svg.append('g'), left - 44, top - 11, name + unit, run.color, colors)
      .attr('font-weight', 700).attr('font-size', 12.5).append('title').text(run.name);
    const [low, high] = figure.view.now;
    for (const group of groups) {
      if (group.to <= low || group.from >= high) continue;
      const x0 = panel.x(Math.max(low, group.from)), x1 = panel.x(Math.min(high, group.to));
      let base = 0;
      for (const [key, , color] of parts) {
        figure.svg.append('rect').attr('x', x0).attr('width', Math.max(0.5, x1 - x0 - 0.6))
          .attr('y', panel.y(base + group[key]))
          .attr('height', panel.y(base) - panel.y(base + group[key])).attr('fill', colors[color]);
        base += group[key];
      }
    }
    paintBreak(figure, panel, colors);
    const limit = run.slo('ttft');
    if (limit != null) {
      limitLine(figure, panel, {y: limit, text: `SLO ${limit} ms`, isLeft: true}, colors);
    }
  });
}

function hoverBreakdown(panel, x) {
  const share = panel.x.invert(x);
  const group = panel.groups.find(({from, to}) => share >= from && share < to);
  if (!group) return null;
  const colors = theme();
  return {
    title: `${panel.run.name}: ${formatNumber(group.from * 100, 1)} to ` +
      `${formatNumber(group.to * 100, 1)} % of requests`,
    lines: [['mean TTFT', formatMs(group.ttft)], ...partsOf([panel]).map(([key, text, color]) =>
      [text, formatMs(group[key]), colors[color]])],
    marks: [{x}]};
}

function breakdownFigure(runs) {
  const shown = () => detailed(runs).filter((run) => run.detail.ttftParts.size.length > 0)
    .map((run) => ({run, groups: run.groups || (run.groups = ttftGroups(run))}));
  const all = runs.filter((run) => run.detail && run.detail.ttftParts.size.length > 0);
  if (all.length === 0) return null;
  const heights = shown().map(({groups}) => d3.max(groups, (group) => group.ttft));
  const figure = new Figure({
    id: 'breakdown', title: 'Parts of the time to first token', view: new View([0, 1]),
    lead: 'Time to first token: front end (if any), queue, the steps that computed the ' +
      'request\'s own chunks, and the rest. The groups have equal numbers of requests, by TTFT.',
    draw: {
      height: (width) => {
        const rows = Math.ceil(shown().length / breakdownColumns(width, shown().length));
        return 66 + (width < 560 ? 19 : 0) +
          Math.max(1, rows) * (fitted(168) + kBreakdownSpace) - 20;
      },
      paint: (self, context, colors) => paintBreakdown(shown(), self, colors),
    },
    hover: (self, panel, x) => hoverBreakdown(panel, x),
  });
  figure.isShared = heights.length > 3 || d3.max(heights) < 5 * d3.min(heights);
  if (heights.length > 1) {
    const select = figure.addChoice('axes', [['shared', 'shared'], ['own', 'separate']],
      (value) => { figure.isShared = value === 'shared'; });
    select.value = figure.isShared ? 'shared' : 'own';
  }
  return figure;
}
