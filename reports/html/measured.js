// SPDX-License-Identifier: Apache-2.0
// Simulated against measured: pairs of runs of the same variant on a cost model and for real.

function measuredPairs(runs) {
  const isSimulated = (run) => run.result.backend === 'sim';
  const identity = (run) => JSON.stringify([run.result.label, run.result.model_id,
    run.result.num_prompts, run.result.total_input_tokens]);
  const pairs = [];
  for (const measured of runs.filter((run) => run.detail && !isSimulated(run))) {
    const simulated = runs.find((run) => run.detail && isSimulated(run) &&
                                         identity(run) === identity(measured));
    if (simulated) pairs.push({simulated, measured});
  }
  return pairs;
}

// Whether both made the same steps of the same tokens.
function decideAlike({simulated, measured}) {
  if (!measured.detail.hasSteps) return false;
  const a = simulated.detail.steps, b = measured.detail.steps;
  if (a.num_points !== b.num_points || a.num_kept !== a.num_points) return false;
  if (b.num_kept !== b.num_points) return false;
  return a.prefill.every((tokens, i) => tokens === b.prefill[i] && a.decode[i] === b.decode[i]);
}

function paintPairCurves(pair, figure, panel, colors) {
  const limit = sharedSlo([pair.simulated, pair.measured], 'itl');
  axisBottom(figure, panel, {ticks: logTicks(panel.x, panel.right - panel.left),
    format: (ms) => grouped(+ms.toPrecision(3)), label: 'inter-token latency, ms'}, colors);
  axisLeft(figure, panel, {format: (share) => `${Math.round(share * 100)} %`,
    label: 'share that are at most as long'}, colors);
  for (const [run, color, dash] of [[pair.simulated, colors.decode, '7 3'],
    [pair.measured, colors.prefill, '']]) {
    figure.svg.append('path').attr('d', curvePath(curveOf(run, 'itl'), panel, false))
      .attr('fill', 'none').attr('stroke', color).attr('stroke-width', 2)
      .attr('stroke-dasharray', dash);
  }
  if (limit != null) {
    limitLine(figure, panel, {x: limit, text: `SLO ${limit} ms`, isLow: true}, colors);
  }
}

function paintStepScatter(pair, figure, context, panel, colors) {
  const [low, high] = panel.x.domain();
  axisBottom(figure, panel, {ticks: logTicks(panel.x, panel.right - panel.left),
    format: (ms) => grouped(+ms.toPrecision(3)), label: 'step time simulated, ms'}, colors);
  axisLeft(figure, panel, {ticks: logTicks(panel.y, panel.bottom - panel.top),
    format: (ms) => grouped(+ms.toPrecision(3)), label: 'step time measured, ms'}, colors);
  for (const [factor, dash] of [[1, ''], [1.1, '3 3'], [1 / 1.1, '3 3']]) {
    figure.svg.append('line').attr('stroke', colors.axis).attr('stroke-dasharray', dash)
      .attr('x1', panel.x(low)).attr('y1', panel.y(low * factor))
      .attr('x2', panel.x(high)).attr('y2', panel.y(high * factor));
  }
  const a = pair.simulated.detail.steps, b = pair.measured.detail.steps;
  context.globalAlpha = 0.5;
  for (let i = 0; i < a.time.length; ++i) {
    context.fillStyle = a.prefill[i] > 0 ? colors.prefill : colors.decode;
    const x = panel.x(a.time[i] / 1000), y = panel.y(b.time[i] / 1000);
    if (x < panel.left || x > panel.right || !(y > panel.top && y < panel.bottom)) continue;
    context.fillRect(x - 1.3, y - 1.3, 2.6, 2.6);
  }
  context.globalAlpha = 1;
}

function paintMeasured(state, figure, context, colors) {
  const {pair} = state;
  const isAlike = decideAlike(pair);
  const items = [{text: 'simulated', color: colors.decode, dash: '7 3'},
    {text: 'measured', color: colors.prefill, dash: ''}];
  if (isAlike) {
    items.push({text: 'step of decodes', color: colors.decode, box: true},
      {text: 'step with prefill', color: colors.prefill, box: true});
  }
  const legend = drawLegend(figure, items, colors, 60);
  const places = panelPlaces(figure, isAlike ? 2 : 1, legend + 26, fitted(280));
  const range = (curves) => [d3.min(curves, (c) => c[0]) * 0.85, d3.max(curves, (c) => c[1]) * 1.2];
  const ends = (run) => {
    const {ns} = curveOf(run, 'itl');
    return [Math.max(1e-3, ns[0] / 1e6), ns[ns.length - 1] / 1e6];
  };
  const x = d3.scaleLog().domain(range([ends(pair.simulated), ends(pair.measured)]))
    .range([places[0].left, places[0].right]);
  const y = d3.scaleLinear().domain([0, 1]).range([places[0].bottom, places[0].top]);
  paintPairCurves(pair, figure, addPanel(figure, {...places[0], x, y, kind: 'curves'}), colors);
  if (!isAlike) return;
  const times = (run) => d3.extent(run.detail.steps.time, (us) => Math.max(1, us) / 1000);
  const domain = range([times(pair.simulated), times(pair.measured)]);
  paintStepScatter(pair, figure, context, addPanel(figure, {...places[1], kind: 'steps',
    x: d3.scaleLog().domain(domain).range([places[1].left, places[1].right]),
    y: d3.scaleLog().domain(domain).range([places[1].bottom, places[1].top])}), colors);
}

function ratioTable({simulated, measured}) {
  const body = element('tbody');
  for (const key of kTable.lists.pair) {
    const {scale} = kTable.figures[key];
    const s = simulated.result[key] * scale, m = measured.result[key] * scale;
    body.append(element('tr', {}, element('th', {scope: 'row'}, axisName(key)),
      element('td', {}, formatNumber(s, 2)), element('td', {}, formatNumber(m, 2)),
      element('td', {}, formatNumber(s / m, 3))));
  }
  return element('table', {}, headRow('', 'simulated', 'measured', 'simulated / measured'), body);
}

function measuredFigure(runs) {
  const pairs = measuredPairs(runs).filter((pair) => curveOf(pair.simulated, 'itl') &&
                                                     curveOf(pair.measured, 'itl'));
  if (pairs.length === 0) return null;
  const state = {pair: pairs[0]};
  const figure = new Figure({
    id: 'measured', title: 'Simulated against measured', view: null,
    lead: 'The same variant on the cost model and for real. If both made the same decisions, ' +
      'each dot is a step: exact on the line, and within 10 % between the dashed lines.',
    draw: {
      height: (width) => 60 + panelsHeight(width, decideAlike(state.pair) ? 2 : 1, fitted(280)),
      paint: (self, context, colors) => paintMeasured(state, self, context, colors),
    },
    hover: (self, panel, x) => {
      if (panel.kind !== 'curves') return null;
      const ms = panel.x.invert(x);
      const share = (run) =>
        `${formatNumber(100 * shareAtMost(curveOf(run, 'itl'), ms * 1e6), 2)} %`;
      return {title: `at most ${formatMs(ms)}`, marks: [{x}],
        lines: [['simulated', share(state.pair.simulated)],
          ['measured', share(state.pair.measured)]]};
    },
  });
  const fill = () => {
    figure.caption.textContent = decideAlike(state.pair) ? 'Both made the same decisions.'
      : !state.pair.measured.detail.hasSteps
        ? 'A client measured the server; it saw no steps to compare one by one.'
        : 'They decided differently, so steps cannot be compared one by one.';
    figure.below.replaceChildren(element('div', {class: 'scroll'}, ratioTable(state.pair)));
  };
  figure.addChoice('variant', pairs.map((pair, i) => [i, pair.measured.name]), (value) => {
    state.pair = pairs[Number(value)];
    fill();
  });
  fill();
  return figure;
}
