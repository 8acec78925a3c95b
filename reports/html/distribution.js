// SPDX-License-Identifier: Apache-2.0
// How latencies are distributed: the cumulative curve, and its tail on a logarithmic axis.

const kMetrics = {
  itl: {name: 'inter-token latency', of: 'latencies'},
  ttft: {name: 'time to first token', of: 'requests'},
  e2el: {name: 'end-to-end latency', of: 'requests'},
};

function curveOf(run, metric) {
  const curve = run.detail && run.detail[metric];
  return curve && curve.ns.length > 0 ? curve : null;
}

// The share of values that are at most `ns`.
function shareAtMost(curve, ns) {
  const i = d3.bisectRight(curve.ns, ns) - 1;
  return i < 0 ? 0 : curve.below[i] / curve.below[curve.below.length - 1];
}

// The same percentile as numpy's for values that the curve holds; else of its neighbours.
function quantile(curve, share) {
  const total = curve.below[curve.below.length - 1];
  const i = d3.bisector((x) => x).left(curve.below, share * total);
  return curve.ns[Math.min(i, curve.ns.length - 1)];
}

// Steps of the curve: up at each value. `isTail`: the share that is greater, instead.
function curvePath(curve, panel, isTail) {
  const total = curve.below[curve.below.length - 1];
  const [low, high] = panel.x.domain();
  const floor = panel.y.domain()[0];
  const share = (i) => {
    const below = i < 0 ? 0 : curve.below[i] / total;
    return isTail ? Math.max(floor, 1 - below) : below;
  };
  const begin = Math.max(0, d3.bisectRight(curve.ns, low * 1e6) - 1);
  let path = `M${panel.left},${panel.y(share(begin - (curve.ns[begin] >= low * 1e6 ? 1 : 0)))}`;
  for (let i = begin; i < curve.ns.length; ++i) {
    const ms = curve.ns[i] / 1e6;
    if (ms > high) { path += `H${panel.right}`; return path; }
    const x = panel.x(Math.max(low, ms)).toFixed(1);
    path += `H${x}V${panel.y(share(i)).toFixed(1)}`;
  }
  return isTail ? path : `${path}H${panel.right}`;
}

// Legend of the runs in detail: those that are drawn and, of few, those that are not.
function runItems(runs) {
  return runs.filter((run) => run.detail && (!run.isHidden || runs.length <= kDrawnAtOnce))
    .map((run) => ({text: run.name, color: run.color, dash: run.dash, isHidden: run.isHidden,
      toggle: () => toggleRun(run)}));
}

function distributionPanels(figure, top, bottom) {
  const isWide = figure.width > 700;
  const left = 58, right = 14;
  if (isWide) {
    const middle = figure.width / 2;
    return [{left, right: middle - 22, top, bottom},
      {left: middle + left - 12, right: figure.width - right, top, bottom}];
  }
  const height = (bottom - top - 80) / 2;
  return [{left, right: figure.width - right, top, bottom: top + height},
    {left, right: figure.width - right, top: bottom - height, bottom}];
}

function tailFloor(runs, metric) {
  const totals = runs.map((run) => d3.max(curveOf(run, metric).below));
  return 10 ** Math.floor(Math.log10(1 / d3.max(totals)));
}

function paintDistribution(runs, state, figure, context, colors) {
  const shown = runs.filter((run) => !run.isHidden && curveOf(run, state.metric));
  const legend = drawLegend(figure, runItems(runs), colors, 58);
  const top = legend + 26;
  const panels = distributionPanels(figure, top, figure.height - 48);
  const limit = sharedSlo(shown, state.metric);
  const metric = kMetrics[state.metric];
  panels.forEach((place, k) => {
    const isTail = k === 1;
    const panel = addPanel(figure, {...place, isTail,
      x: d3.scaleLog().domain(figure.view.now).range([place.left, place.right]),
      y: isTail
        ? d3.scaleLog().domain([shown.length ? tailFloor(shown, state.metric) : 0.001, 1])
          .range([place.bottom, place.top])
        : d3.scaleLinear().domain([0, 1]).range([place.bottom, place.top])});
    axisBottom(figure, panel, {ticks: logTicks(panel.x, place.right - place.left),
      format: (ms) => (ms < 1 ? `${+ms.toPrecision(2)}` : grouped(+ms.toPrecision(3))),
      label: `${metric.name}, ms`}, colors);
    axisLeft(figure, panel, {
      ticks: isTail ? logTicks(panel.y, place.bottom - place.top) : null,
      format: isTail ? percentText : (share) => `${Math.round(share * 100)} %`,
      label: isTail ? `share of ${metric.of} that are longer` : `share that are at most as long`},
      colors);
    for (const run of shown) {
      figure.svg.append('path').attr('d', curvePath(curveOf(run, state.metric), panel, isTail))
        .attr('fill', 'none').attr('stroke', run.color).attr('stroke-width', 2)
        .attr('stroke-dasharray', run.dash).attr('stroke-linejoin', 'round');
    }
    if (limit != null) {
      limitLine(figure, panel, {x: limit, text: `SLO ${limit} ms`, isLow: !isTail}, colors);
    }
  });
}

function percentText(share) {
  const percent = share * 100;
  return percent >= 1 ? `${Math.round(percent)} %`
    : `${percent >= 0.001 ? +percent.toPrecision(1) : percent.toExponential(0)} %`;
}

function hoverDistribution(runs, state, figure, panel, x) {
  const ms = panel.x.invert(x);
  const lines = [];
  for (const run of runs) {
    const curve = !run.isHidden && curveOf(run, state.metric);
    if (!curve) continue;
    const share = shareAtMost(curve, ms * 1e6);
    lines.push([run.name, panel.isTail ? `${formatNumber((1 - share) * 100, 3)} % longer`
      : `${formatNumber(share * 100, 2)} %`, run.color]);
  }
  return {title: `${panel.isTail ? '' : 'at most '}${formatMs(ms)}`, lines, marks: [{x}]};
}

function distributionFigure(runs) {
  const drawn = runs.filter((run) => curveOf(run, 'itl') || curveOf(run, 'ttft'));
  if (drawn.length === 0) return null;
  const state = {metric: drawn.some((run) => curveOf(run, 'itl')) ? 'itl' : 'ttft'};
  const range = (metric) => {
    const shown = detailed(runs).filter((run) => curveOf(run, metric));
    const curves = (shown.length > 0 ? shown : drawn).map((run) => curveOf(run, metric))
      .filter(Boolean);
    const low = d3.min(curves, (curve) => curve.ns[0]) / 1e6;
    const high = d3.max(curves, (curve) => curve.ns[curve.ns.length - 1]) / 1e6;
    return [Math.max(1e-3, low * 0.9), Math.max(high * 1.1, low * 2, 2e-3)];
  };
  const view = new View(range(state.metric));
  const figure = new Figure({
    id: 'distribution', title: 'Latency distribution and its tail', view,
    lead: 'Left: the share up to each latency. Right: the share that is longer, on a ' +
      'logarithmic axis; it shows stalls that a median hides.',
    draw: {
      height: (width) => (width > 700 ? fitted(400) : 640) +
        legendLayout(runItems(runs), width, 58).height - 28,
      paint: (self, context, colors) => paintDistribution(runs, state, self, context, colors),
    },
    hover: (self, panel, x) => hoverDistribution(runs, state, self, panel, x),
  });
  const fit = () => {
    view.full = range(state.metric);
    view.now = view.full.slice();
  };
  figure.onRuns = fit;
  const options = Object.entries(kMetrics)
    .filter(([key]) => drawn.some((run) => curveOf(run, key)))
    .map(([key, metric]) => [key, `${blockOf(`p99_${key}_ms`).split(',')[0]}, ${metric.name}`]);
  figure.addChoice('of', options, (value) => {
    state.metric = value;
    fit();
  });
  return figure;
}
