// SPDX-License-Identifier: Apache-2.0
// A heat map of two swept settings: one cell for each pair of their values.

const isLessBetter = (key) => betterOf(key) < 0;

// The cells of a pair of settings by "x y", each with its runs; those without a value are left out.
function heatCells(runs, x, y) {
  const cells = new Map();
  for (const run of runs) {
    if (x.of(run) === undefined || y.of(run) === undefined) continue;
    const key = `${x.values.indexOf(x.of(run))} ${y.values.indexOf(y.of(run))}`;
    cells.set(key, [...(cells.get(key) || []), run]);
  }
  return cells;
}

const areNumbers = ({values}) => values.every((value) => Number.isFinite(Number(value)));

// The settings that can stand on an axis: the swept settings, and all settings but the load as one.
function heatKeys(runs) {
  const keys = sweptKeys(runs);
  const groups = collectGroups(runs, kLoadKeys, loadOf);
  if (groups.length < 2) return keys;
  nameGroups(groups);
  const names = new Map(groups.flatMap(({name, points}) => points.map(({run}) => [run, name])));
  const setting = {key: 'setting', name: 'setting', of: (run) => names.get(run),
    values: [...new Set(names.values())].sort(byNumber)};
  return [...keys, setting];
}

// The pair with the most cells of which at least half are there: names upwards, numbers across.
function widestPair(runs, keys) {
  let best = null, most = 3;
  keys.forEach((x, i) => keys.forEach((y, k) => {
    if (i <= k) return;
    const {size} = heatCells(runs, x, y);
    if (size <= most || size < 0.5 * x.values.length * y.values.length) return;
    most = size;
    const isTurned = areNumbers(x) === areNumbers(y) ? x.values.length < y.values.length
      : areNumbers(y);
    best = isTurned ? {x: y, y: x} : {x, y};
  }));
  return best;
}

// Of several runs in a cell, the best by the figure that the map shows.
function bestOfCell(runs, key) {
  const known = runs.filter((run) => Number.isFinite(run.result[key]));
  const sign = isLessBetter(key) ? 1 : -1;
  return known.length === 0 ? null : known[d3.minIndex(known, (run) => sign * run.result[key])];
}

// From the worst to the best: 0 to 1, by the logarithm where the values span a factor of 12.
function heatShare(values, key) {
  const [low, high] = d3.extent(values);
  const isLog = low > 0 && high / low > 12;
  const scale = (isLog ? d3.scaleLog() : d3.scaleLinear())
    .domain([low, high === low ? low + 1 : high]).range(isLessBetter(key) ? [1, 0] : [0, 1]);
  return {scale, isLog, low, high};
}

const heatText = (value, key) => {
  const shown = value * kTable.figures[key].scale;
  return shown >= 100000 ? d3.format('.3~s')(shown)
    : formatNumber(shown, shown < 10 ? 2 : shown < 100 ? 1 : 0);
};

// The colours from the worst to the best, with the values at their ends.
function paintHeatLegend(figure, {scale, low, high}, key, colors) {
  const left = 12, width = Math.min(180, figure.width - 150), top = 26;
  figure.svg.append('text').attr('x', left).attr('y', 18).attr('fill', colors.text)
    .text(axisName(key));
  for (let i = 0; i < 60; ++i) {
    figure.svg.append('rect').attr('x', left + i * width / 60).attr('y', top)
      .attr('width', width / 60 + 0.5).attr('height', 10)
      .attr('fill', d3.interpolateCividis(i / 59));
  }
  const ends = isLessBetter(key) ? [high, low] : [low, high];
  figure.svg.append('text').attr('x', left).attr('y', top + 24).attr('fill', colors.muted)
    .attr('font-size', 11).text(heatText(ends[0], key));
  figure.svg.append('text').attr('x', left + width).attr('y', top + 24).attr('font-size', 11)
    .attr('text-anchor', 'end').attr('fill', colors.muted)
    .text(`${heatText(ends[1], key)} (best)`);
  return scale;
}

const kHeatTop = 84;
// Many rows are lower; on paper all fit a page.
function heatRow({y: {values: {length}}}) {
  return isPrinting ? Math.min(30, 760 / length) : length > 24 ? 20 : 30;
}
function heatPlace(state, width) {
  const left = 24 + Math.min(width < 560 ? 110 : 280,
    d3.max(state.y.values, (value) => textWidth(value)));
  return {left, right: width - 14, top: kHeatTop,
    bottom: kHeatTop + state.y.values.length * heatRow(state)};
}

function paintHeatAxes(figure, panel, {x, y}, colors) {
  const {pitch, row} = panel;
  const text = (px, py, anchor, content, fill = colors.muted) => figure.svg.append('text')
    .attr('x', px).attr('y', py).attr('text-anchor', anchor).attr('fill', fill)
    .attr('font-size', 11.5).text(content);
  let free = -Infinity;  // where the next label may begin
  x.values.forEach((value, i) => {
    const middle = panel.left + (i + 0.5) * pitch, half = textWidth(value) / 2;
    if (middle - half < free) return;
    free = middle + half + 4;
    text(middle, panel.bottom + 17, 'middle', value);
  });
  const every = Math.ceil(13 / row);
  y.values.forEach((value, k) => {
    if (k % every > 0) return;
    text(panel.left - 6, panel.bottom - (k + 0.5) * row + 4, 'end',
      shortened(value, panel.left - 18));
  });
  text((panel.left + panel.right) / 2, panel.bottom + 36, 'middle', x.name, colors.text);
  text(12, panel.top - 8, 'start', y.name, colors.text);
}

function paintHeat(runs, state, figure, colors) {
  const {key} = state;
  const place = heatPlace(state, figure.width);
  const cells = heatCells(listed(runs), state.x, state.y);
  const best = new Map([...cells].map(([at, members]) => [at, bestOfCell(members, key)])
    .filter(([, run]) => run));
  const pitch = (place.right - place.left) / state.x.values.length, row = heatRow(state);
  const points = [...best.keys()].map((at) => at.split(' ').map(Number)).map(([i, k]) =>
    ({x: place.left + (i + 0.5) * pitch, y: place.bottom - (k + 0.5) * row}));
  const panel = addPanel(figure, {...place, cells, best, pitch, row, points});
  const values = [...best.values()].map((run) => run.result[key]);
  const share = heatShare(values.length > 0 ? values : [0], key);
  paintHeatLegend(figure, share, key, colors);
  paintHeatAxes(figure, panel, state, colors);
  figure.svg.append('rect').attr('x', place.left).attr('y', place.top).attr('fill', colors.grid)
    .attr('width', place.right - place.left).attr('height', place.bottom - place.top);
  const top = d3.max(values, (value) => share.scale(value));
  for (const [at, run] of best) {
    const [i, k] = at.split(' ').map(Number);
    const left = place.left + i * pitch, y = place.bottom - (k + 1) * row;
    const value = run.result[key], t = share.scale(value);
    figure.svg.append('rect').attr('x', left + 1).attr('y', y + 1).attr('width', pitch - 2)
      .attr('height', Math.max(1, row - 2)).attr('rx', 2).attr('fill', d3.interpolateCividis(t));
    const content = heatText(value, key);
    if (textWidth(content, `bold 12px ${kFont}`) + 8 > pitch || row < 15) continue;
    figure.svg.append('text').attr('x', left + pitch / 2).attr('y', y + row / 2 + 4)
      .attr('text-anchor', 'middle').attr('fill', t > 0.55 ? '#101418' : '#f5f7fa')
      .attr('font-weight', t === top ? 700 : 400).text(content);
  }
  for (const [at, run] of best) paintHeatRims(figure, panel, at, run, colors);
}

// A rim around the cells of selected runs.
function paintHeatRims(figure, panel, at, run, colors) {
  const [i, k] = at.split(' ').map(Number);
  if (!panel.cells.get(at).some((member) => member.isSelected)) return;
  const rim = (inset, color, width) => figure.svg.append('rect').attr('fill', 'none')
    .attr('x', panel.left + i * panel.pitch + inset).attr('rx', 2)
    .attr('y', panel.bottom - (k + 1) * panel.row + inset).attr('stroke', color)
    .attr('width', panel.pitch - 2 * inset).attr('height', panel.row - 2 * inset)
    .attr('stroke-width', width);
  rim(1, colors.panel, 4);
  rim(1, run.isSelected ? run.color : colors.text, 2.5);
}

function hoverHeat(state, panel, x, y) {
  const i = Math.floor((x - panel.left) / panel.pitch);
  const k = Math.floor((panel.bottom - y) / panel.row);
  const run = panel.best.get(`${i} ${k}`);
  if (!run) return null;
  const others = panel.cells.get(`${i} ${k}`).length - 1;
  const {key} = state;
  return {title: run.name, run,
    lines: [[axisName(key), heatText(run.result[key], key)], ...runLines(run)],
    note: others > 0 ? `the best of ${others + 1} runs in this cell` : ''};
}

function heatCaption(runs, state) {
  const cells = [...heatCells(runs, state.x, state.y).values()];
  const numOut = runs.length - d3.sum(cells, (members) => members.length);
  const most = d3.max(cells, (members) => members.length);
  return (most > 1 ? `A cell shows the best of up to ${most} runs. ` : '') +
    (numOut > 0 ? `Without one of the settings, and left out: ${plural(numOut, 'run')}. ` : '') +
    'Rims mark selected runs.';
}

function heatFigure(runs) {
  const keys = heatKeys(runs);
  const pair = widestPair(runs, keys);
  if (!pair) return null;
  const known = kTable.lists.map.filter((key) =>
    runs.some((run) => Number.isFinite(run.result[key])));
  if (known.length === 0) return null;
  const state = {...pair, key: known[0]};
  const figure = new Figure({
    id: 'heat', title: 'Two settings at once', view: null,
    lead: 'Each cell is a pair of values. The brighter, the better.',
    draw: {height: (width) => heatPlace(state, width).bottom + 48,
      paint: (self, context, colors) => paintHeat(runs, state, self, colors)},
    hover: (self, panel, x, y) => hoverHeat(state, panel, x, y), picks: true,
  });
  figure.addChoice('of', known.map((key) => [key, axisName(key)]), (value) => {
    state.key = value;
  });
  for (const axis of ['x', 'y']) {
    const other = axis === 'x' ? 'y' : 'x';
    const select = figure.addChoice(axis === 'x' ? 'across' : 'up',
      keys.map(({name}, i) => [i, name]), (value) => {
        // Axes with equal keys change places.
        if (state[other] === keys[value]) state[other] = state[axis];
        state[axis] = keys[value];
        figure.prepare();
      });
    figure[axis] = select;
  }
  figure.prepare = () => {
    figure.x.value = String(keys.indexOf(state.x));
    figure.y.value = String(keys.indexOf(state.y));
    figure.caption.textContent = heatCaption(listed(runs), state);
  };
  return figure;
}
