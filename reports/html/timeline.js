// SPDX-License-Identifier: Apache-2.0
// The ITL timeline: every gap between tokens over the run, with the stalls and what caused them.

const kTimelineState = {axis: null};  // null: whichever fits

function timelineRows(runs) { return detailed(runs); }

function stallCause(stall) {
  if (stall.isUnseen) return 'a client cannot see the cause';
  if (stall.parts.preemption > 0) return 'it was preempted and computed again';
  if (!stall.chunk) return 'no prefill delayed it';
  const chunk = `${grouped(stall.chunk.tokens)} tokens of request ${stall.chunk.request}`;
  const prefill = stall.chunk.tokens === stall.prefill_tokens
    ? `prefill of ${chunk}`
    : `${grouped(stall.prefill_tokens)} tokens prefilled, ${chunk} in one chunk`;
  if (!(stall.parts.encode > 0)) return prefill;
  return isOfImages(stall) ? `encoding of images, and ${prefill}`
    : `${prefill}, and encoding of images`;
}
// Whether the encoding of images delayed it for longer than the prefill.
const isOfImages = (stall) => stall.parts.encode > stall.parts.prefill;

// The highest point of each pixel column, so that a hundred thousand gaps cost what a screen holds.
// The part above the limit is in its colour.
function paintStems(context, gaps, panel, range, color, limitUs, colors) {
  const [begin, end] = range;
  const base = panel.bottom;
  const tops = new Float64Array(Math.ceil(panel.right - panel.left) + 2).fill(base);
  for (let i = begin; i < end; ++i) {
    const column = Math.round(panel.x(gaps.after[i]) - panel.left);
    if (column < 0 || column >= tops.length) continue;
    const y = panel.y(Math.max(gaps.gap[i], panel.y.domain()[0]));
    if (y < tops[column]) tops[column] = y;
  }
  const limit = limitUs === null ? panel.top
    : Math.max(panel.top, Math.min(base, panel.y(Math.max(limitUs, panel.y.domain()[0]))));
  for (let c = 0; c < tops.length; ++c) {
    if (tops[c] >= base) continue;
    const x = panel.left + c - 0.5;
    const knee = Math.max(limit, tops[c]);
    context.globalAlpha = 0.5;
    context.fillStyle = color;
    context.fillRect(x, knee, 1.2, base - knee);
    if (tops[c] >= limit) continue;
    context.globalAlpha = 0.75;
    context.fillStyle = colors.slo;
    context.fillRect(x, tops[c], 1.4, limit - tops[c]);
  }
  context.globalAlpha = 1;
}

function paintPoints(context, gaps, panel, range, colors, run, limitUs) {
  const [begin, end] = range;
  const floor = panel.y.domain()[0];
  const isSparse = end - begin < 4000;
  const size = isSparse ? 2.6 : 1.6;
  const cells = new Uint8Array((Math.ceil(panel.right - panel.left) + 2) *
                               (Math.ceil(panel.bottom - panel.top) + 2));
  const rowLength = Math.ceil(panel.right - panel.left) + 2;
  for (const isLate of [false, true]) {
    context.fillStyle = isLate ? colors.slo : run.color;
    for (let i = begin; i < end; ++i) {
      if ((limitUs !== null && gaps.gap[i] > limitUs) !== isLate) continue;
      const x = panel.x(gaps.after[i]);
      const y = panel.y(Math.max(gaps.gap[i], floor));
      const cell = Math.round(y - panel.top) * rowLength + Math.round(x - panel.left);
      if (cells[cell] === (isLate ? 2 : 1)) continue;
      cells[cell] = isLate ? 2 : 1;
      context.fillRect(x - size / 2, y - size / 2, size, size);
    }
  }
}

const kListedStalls = 8;  // in the table below

// Numbered markers on the longest stalls in sight; the first ones say what caused them.
function drawStallMarkers(figure, panel, run, colors) {
  const [low, high] = panel.x.domain();
  // Beside a limit, only what exceeds it is a stall, but for the longest.
  const limit = run.slo('itl');
  const limitY = limit == null ? -Infinity : panel.y(limit * 1000);
  const least = Math.max(limit == null ? 0 : limit * 1000, 0.25 * d3.max(run.detail.stalls,
    (stall) => stall.gap));
  const stalls = run.detail.stalls
    .map((stall, i) => ({stall, rank: i + 1, end: stall.began + stall.gap}))
    .filter(({stall, rank, end}) => end >= low && end <= high &&
                                    (figure.view.isZoomed || rank === 1 ||
                                     (stall.gap > least && rank <= kListedStalls)));
  const taken = [];
  const texts = [];
  const maxTexts = panel.right - panel.left > 600 ? 3 : 1;
  for (const {stall, rank, end} of stalls) {
    if (taken.length >= (figure.width < 560 ? 4 : 8)) break;
    const x = panel.x(end);
    const above = panel.y(stall.gap) - 11;
    // Its text is not struck through by the limit's line.
    const y = Math.max(panel.top + 9, Math.abs(above - limitY) < 11 ? limitY - 11 : above);
    if (taken.some((other) => Math.hypot(other.x - x, other.y - y) < 19)) continue;
    if (texts.some((box) => x > box.left - 9 && x < box.right + 9 && Math.abs(y - box.y) < 17)) {
      continue;
    }
    taken.push({x, y});
    const group = figure.svg.append('g');
    group.append('line').attr('x1', x).attr('x2', x).attr('y1', y + 8)
      .attr('y2', panel.y(stall.gap)).attr('stroke', colors.text);
    group.append('circle').attr('cx', x).attr('cy', y).attr('r', 8.5).attr('fill', colors.text);
    group.append('text').attr('x', x).attr('y', y + 3.8).attr('text-anchor', 'middle')
      .attr('font-size', 10.5).attr('font-weight', 700).attr('fill', colors.panel).text(rank);
    if (texts.length < maxTexts) addStallText(figure, panel, stall, x, y, taken, texts, colors);
  }
}

function addStallText(figure, panel, stall, x, y, taken, texts, colors) {
  const text = `${formatUs(stall.gap)}: ${shortCause(stall)}`;
  const width = textWidth(text) + 4;
  for (const side of [1, -1]) {
    const left = side > 0 ? x + 13 : x - 13 - width;
    const box = {left, right: left + width, y};
    if (left < panel.left + 2 || box.right > panel.right - 2) continue;
    const isClear = !texts.some((other) => Math.abs(other.y - y) < 17 && other.left < box.right &&
                                           other.right > box.left) &&
      !taken.some((other) => Math.abs(other.y - y) < 16 && other.x > left - 9 &&
                             other.x < box.right + 9);
    if (!isClear) continue;
    texts.push(box);
    label(figure.svg.append('g'), side > 0 ? left : box.right, y + 4, text, colors.text, colors,
      side > 0 ? 'start' : 'end');
    return;
  }
}

function shortCause(stall) {
  if (stall.isUnseen) return `request ${stall.request}`;
  if (stall.parts.preemption > 0) return `request ${stall.request} was preempted`;
  if (!stall.chunk) return 'no prefill';
  if (isOfImages(stall)) return `images of request ${stall.chunk.request}`;
  return `${grouped(stall.chunk.tokens)}-token chunk of request ${stall.chunk.request}`;
}

const gapExtent = (run) => run.gapExtent || (run.gapExtent = d3.extent(run.detail.gaps.gap));

// The longest gap in sight of each row.
function highestGaps(rows, view) {
  return rows.map((run) => {
    if (!view.isZoomed) return gapExtent(run)[1] || 1;
    const {gaps} = run.detail;
    const range = [lowerBound(gaps.after, view.now[0]), lowerBound(gaps.after, view.now[1] + 1)];
    const limit = run.slo('itl');
    return Math.max(d3.max(gaps.gap.subarray(...range)) || 1, limit == null ? 1 : limit * 1200);
  });
}

// Unless chosen: shared, but not where it would flatten a row.
function timelineAxis(maxima) {
  if (kTimelineState.axis !== null) return kTimelineState.axis;
  const most = breakOf(maxima) || d3.max(maxima);
  return maxima.length > 3 && most > 6 * d3.min(maxima) ? 'own' : 'shared';
}

// When the last token of each row came; one axis for all, unless that would press together the
// rows of short runs.
const lastToken = ({detail: {gaps}}) => gaps.after[gaps.after.length - 1] || 1;
function hasOwnTimes(rows, view) {
  const ends = rows.map(lastToken);
  return !view.isZoomed && rows.length > 3 && d3.max(ends) > 3 * d3.min(ends);
}

function timelineScale(rows, maxima, i, top, bottom) {
  const axis = timelineAxis(maxima);
  if (axis === 'log') {
    const least = d3.min(rows, (run) => gapExtent(run)[0]) || 1;
    return d3.scaleLog().domain([Math.max(1, least * 0.8), d3.max(maxima) * 1.6])
      .range([bottom, top]);
  }
  if (axis === 'own') return brokenScale(maxima[i], null, top, bottom);
  const breakAt = breakOf(maxima);
  // Beside a break, a row that needs none has the others' axis up to it.
  return brokenScale(breakAt === null ? d3.max(maxima) : Math.max(maxima[i], breakAt / 1.15),
    breakAt, top, bottom);
}

function rowFigures({result}, width) {
  const longest = `longest ${formatMs(result.max_itl_ms)}`;
  if (width < 560) return longest;
  return `p50 ${formatMs(result.p50_itl_ms)} · p99 ${formatMs(result.p99_itl_ms)} · ${longest}`;
}

// The line of a limit, and above the row its name, where no points are.
function paintTimelineHead(figure, panel, run, limit, colors) {
  const y = panel.top - 9;
  const figures = rowFigures(run, figure.width);
  const size = figure.width < 560 ? 12 : 14;  // more of a long name on a phone
  const bold = `bold ${size}px ${kFont}`;
  const free = panel.right - panel.left - textWidth(figures) - 14;
  const name = shortened(run.name, free, bold);
  label(figure.svg.append('g'), panel.left, y, name, run.color, colors)
    .attr('font-weight', 700).attr('font-size', size).append('title').text(run.name);
  label(figure.svg.append('g'), panel.right, y, figures, colors.muted, colors, 'end');
  if (limit == null) return;
  const text = `SLO ${limit} ms`;
  const left = panel.left + textWidth(name, bold) + 14;
  const isRoom = left + textWidth(text) + 14 < panel.right - textWidth(figures);
  limitLine(figure, panel, {y: limit * 1000}, colors);  // the caption names it, too
  if (isRoom) label(figure.svg.append('g'), left, y, text, colors.slo, colors);
}

const kTimelineSpace = {left: 58, right: 14, head: 26, gap: 12, foot: 44, times: 14};
function timelineRowHeight(width, count) {
  const {head, gap, times, foot} = kTimelineSpace;
  // On paper all rows fit a page.
  const most = isPrinting ? Math.max(24, (910 - foot) / count - head - gap - times) : Infinity;
  return Math.min(most, fitted(count > 5 ? 92 : width < 560 ? 120 : 158));
}

function paintTimeline(runs, figure, context, colors) {
  const space = kTimelineSpace;
  const rows = timelineRows(runs);
  const height = timelineRowHeight(figure.width, rows.length);
  const maxima = highestGaps(rows, figure.view);
  const isOwn = hasOwnTimes(rows, figure.view);
  rows.forEach((run, i) => {
    const top = i * (height + space.gap + space.head + (isOwn ? space.times : 0)) + space.head;
    const panel = addPanel(figure, {
      left: space.left, right: figure.width - space.right, top, bottom: top + height, run,
      x: d3.scaleLinear().domain(isOwn ? [0, lastToken(run) * 1.005] : figure.view.now)
        .range([space.left, figure.width - space.right]),
      y: timelineScale(rows, maxima, i, top, top + height)});
    const isLast = i === rows.length - 1;
    const yTicks = panel.y.base ? logTicks(panel.y, height)
      : panel.y.breakAt === undefined ? null : brokenTicks(panel.y, height);
    axisLeft(figure, panel, {ticks: yTicks, format: (us) => `${+(us / 1000).toPrecision(3)}`},
      colors);
    axisBottom(figure, panel, {
      format: isLast || isOwn ? (us) => `${us / 1e6}` : () => '',
      label: isLast ? 'time of the token, s' : ''}, colors);
    const {gaps} = run.detail;
    const [low, high] = panel.x.domain();
    const range = [lowerBound(gaps.after, low), lowerBound(gaps.after, high + 1)];
    const limit = run.slo('itl');
    const limitUs = limit == null ? null : limit * 1000;
    paintStems(context, gaps, panel, range, run.color, limitUs, colors);
    paintPoints(context, gaps, panel, range, colors, run, limitUs);
    paintBreak(figure, panel, colors);
    paintTimelineHead(figure, panel, run, limit, colors);
    drawStallMarkers(figure, panel, run, colors);
  });
  figure.svg.append('text').attr('transform', `translate(13,${figure.height / 2}) rotate(-90)`)
    .attr('text-anchor', 'middle').attr('fill', colors.text).text('inter-token latency, ms');
}

function hoverTimeline(figure, panel, x, y) {
  const {gaps} = panel.run.detail;
  const from = lowerBound(gaps.after, panel.x.invert(x - 9));
  const to = lowerBound(gaps.after, panel.x.invert(x + 9));
  let best = -1, bestDistance = Infinity;
  for (let i = from; i < to; ++i) {
    const py = panel.y(Math.max(gaps.gap[i], panel.y.domain()[0]));
    const distance = Math.hypot(panel.x(gaps.after[i]) - x, (py - y) * 0.6);
    if (distance < bestDistance) { best = i; bestDistance = distance; }
  }
  if (best < 0) return null;
  const colors = theme();
  const gap = gaps.gap[best];
  const waiting = gaps.waiting[best];
  const parts = {decode: gaps.decode[best], drafts: gaps.drafts ? gaps.drafts[best] : 0,
    encode: gaps.encode ? gaps.encode[best] : 0,
    prefill: gaps.prefill[best], waiting: Math.max(0, waiting), preemption: Math.max(0, -waiting)};
  parts.host = Math.max(0, gap - parts.decode - parts.drafts - parts.encode - parts.prefill -
    parts.waiting - parts.preemption);
  const lines = kParts.filter(([key]) => panel.run.detail.hasSteps && parts[key] > 0)
    .map(([key, name]) => [name, formatUs(parts[key]), colors[key]]);
  const request = gaps.request[best];
  lines.push(['waited',
    request > 0 ? `request ${request - 1}` : plural(gaps.count[best], 'request')]);
  if (gaps.cause[best] > 0 && parts.prefill > 0) {
    lines.push(['worst chunk', `${grouped(gaps.cause_tokens[best])} of request ` +
      `${gaps.cause[best] - 1}`]);
  }
  return {
    title: `${formatUs(gap)} at ${formatSeconds(gaps.after[best])}`, lines,
    marks: [{x: panel.x(gaps.after[best]), y: panel.y(Math.max(gap, panel.y.domain()[0]))}]};
}

// A bar of the parts of a gap.
function splitBar(parts) {
  const colors = theme();
  const bar = element('span', {class: 'split'});
  const total = d3.sum(kParts, ([key]) => parts[key]);
  bar.setAttribute('title', kParts.filter(([key]) => parts[key] > 0)
    .map(([key, name]) => `${name} ${formatUs(parts[key])}`).join(', '));
  for (const [key] of kParts) {
    if (!(parts[key] > 0)) continue;
    const piece = element('i');
    piece.style.width = `${100 * parts[key] / total}%`;
    piece.style.background = colors[key];
    bar.append(piece);
  }
  return bar;
}

function headRow(...names) {
  return element('thead', {}, element('tr', {}, ...names.map((name) =>
    element('th', {scope: 'col'}, name))));
}

function stallTable(run, view) {
  const body = element('tbody');
  run.detail.stalls.slice(0, kListedStalls).forEach((stall, i) => {
    const show = () => view.set([stall.began - stall.gap * 2, stall.began + stall.gap * 3]);
    body.append(element('tr', {},
      element('th', {scope: 'row'}, element('button', {type: 'button', onclick: show,
        'aria-label': `zoom to stall ${i + 1}`}, `${i + 1}`)),
      element('td', {}, formatSeconds(stall.began)), element('td', {}, formatUs(stall.gap)),
      element('td', {}, stall.isUnseen ? '-' : splitBar(stall.parts)),
      element('td', {}, grouped(stall.delayed)),
      element('td', {class: 'text'}, `request ${stall.request}: ${stallCause(stall)}`)));
  });
  return element('table', {class: 'wide'},
    headRow('#', 'began', 'gap', 'split', 'delayed', 'request and cause'), body);
}

function culpritTable(run) {
  const body = element('tbody');
  for (const culprit of run.detail.culpritRequests.slice(0, 8)) {
    body.append(element('tr', {}, element('th', {scope: 'row'}, `${culprit.request}`),
      element('td', {}, grouped(culprit.prompt_tokens)), element('td', {}, grouped(culprit.chunks)),
      element('td', {}, grouped(culprit.max_delayed)),
      element('td', {}, `${formatNumber(culprit.total / 1000, 0)}`)));
  }
  return element('table', {},
    headRow('request', 'prompt tokens', 'chunks', 'delayed at once', 'stall ms'), body);
}

// Stalls and culprits of the chosen run, below the figure.
function fillTimelineTables(figure, runs, chosen) {
  const run = runs[chosen];
  const colors = theme();
  const keys = element('p', {class: 'hint'}, 'split: ');
  for (const [key, name] of kParts) {
    const swatch = element('span', {class: 'swatch'});
    swatch.style.cssText = `width:11px;height:11px;border-radius:2px;background:${colors[key]}`;
    keys.append(swatch, `${name}   `);
  }
  if (run.detail.isEstimated) {
    keys.append('(the time of decodes alone in mixed steps is estimated from the other steps)');
  }
  const scroll = (table) => element('div', {class: 'scroll'}, table);
  if (!run.detail.hasSteps) {
    figure.below.replaceChildren(
      element('h3', {}, `Longest stalls of ${run.name}`), scroll(stallTable(run, figure.view)),
      element('p', {class: 'hint'}, 'A client of the server saw the times of tokens, but not the ' +
        'steps.'));
    return;
  }
  figure.below.replaceChildren(
    element('h3', {}, `Longest stalls of ${run.name}`), scroll(stallTable(run, figure.view)), keys,
    element('h3', {}, `Requests whose prompts delayed others in ${run.name}`),
    run.detail.culpritRequests.length > 0 ? scroll(culpritTable(run))
      : element('p', {class: 'hint'}, 'No request waited for the prompt of another one.'));
}

function timelineFigure(runs, view) {
  const rows = timelineRows(runs);
  if (rows.length === 0 || !rows.some((run) => run.detail.gaps.after.length > 0)) return null;
  const figure = new Figure({
    id: 'timeline', title: 'ITL timeline: when tokens came late, and why', view, hasCanvas: true,
    lead: 'Each dot is an inter-token latency (ITL), at the time of the second token. Numbers ' +
      'mark the longest stalls, with the prefill chunk that caused them.',
    draw: {
      height: (width) => {
        const rows = timelineRows(runs);
        const count = Math.max(1, rows.length);
        const times = hasOwnTimes(rows, view) ? kTimelineSpace.times : 0;
        return count * (timelineRowHeight(width, count) + kTimelineSpace.gap + times +
          kTimelineSpace.head) - kTimelineSpace.gap - times + kTimelineSpace.foot;
      },
      paint: (self, context, colors) => paintTimeline(runs, self, context, colors),
    },
    hover: hoverTimeline,
    hint: 'Drag to zoom in, double-click to go back; with the keyboard + - 0 and the arrows. ' +
      'Figures over time move together.',
  });
  const axis = figure.addChoice('axis', [['shared', 'linear, shared'],
    ['own', 'linear, each row its own'], ['log', 'logarithmic']],
  (value) => { kTimelineState.axis = value; figure.prepare(); });
  let chosen = mostStalled(rows).index;
  const select = figure.addChoice('tables of', runNames(runs), (value) => {
    chosen = Number(value);
    fillTimelineTables(figure, runs, chosen);
  });
  figure.show = (run) => { chosen = run.index; };
  figure.prepare = () => {
    select.value = String(chosen);
    const shown = timelineRows(runs);
    const maxima = highestGaps(shown, view);
    axis.value = timelineAxis(maxima);
    const notes = {own: 'Each row has its own axis of latencies.', log: '',
      shared: breakOf(maxima) === null ? '' : 'Where an axis is cut, the part above the cut is ' +
        'compressed: a few runs have far longer gaps than the others.'};
    const limit = sharedSlo(shown, 'itl');
    figure.caption.textContent = (limit === null ? '' : `Dashed: the SLO, ${limit} ms. `) +
      notes[axis.value] + (hasOwnTimes(shown, view)
      ? ' Each row has its own time, from its start to its end.' : '') + keptNote(shown, 'gaps');
    fillTimelineTables(figure, runs, chosen);
  };
  return figure;
}

// The runs that a figure of a single run offers.
const runNames = (runs) => runs.filter((run) => run.detail).map((run) => [run.index, run.name]);

// Says so when a long run was thinned out.
function keptNote(rows, name) {
  const thinned = rows.filter((run) => run.detail[name].num_kept < run.detail[name].num_points);
  if (thinned.length === 0) return '';
  const texts = thinned.slice(0, 3).map((run) => `${run.name}: ` +
    `${grouped(run.detail[name].num_kept)} of ${grouped(run.detail[name].num_points)} points`);
  if (thinned.length > 3) texts.push(`and ${thinned.length - 3} more runs`);
  return ` Only the smallest and the largest of many neighbouring values are drawn (` +
    `${texts.join('; ')}).`;
}
