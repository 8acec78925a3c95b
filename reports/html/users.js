// SPDX-License-Identifier: Apache-2.0
// Interactivity (tokens/s per user) against throughput (tokens/s per GPU), over loads and
// settings.

const kPerGpu = {
  output: [() => axisName('output_tokens_per_s_per_gpu'),
    (run) => run.result.output_tokens_per_s_per_gpu],
  total: [() => `${axisName('total_token_throughput')} per GPU`,
    ({result}) => result.total_token_throughput / result.tensor_parallel_size]};
const userSpeed = (run) => run.result.output_tokens_per_s_per_user;

// Sets of runs of one model and of requests that differ in nothing but the load.
function modelSets(runs) {
  const sets = d3.nest().key((run) => JSON.stringify([run.result.model_id, run.result.backend,
    Object.entries(run.settings).filter(([key]) =>
      key.startsWith('workload.') && !kLoadKeys.includes(key))])).entries(runs);
  return sets.map(({values}) => values).filter((set) => set.length > 1);
}

const loadText = (run) => (isOpenLoop(run) ? `${+run.result.request_rate.toPrecision(3)}/s`
  : run.result.max_concurrency ? `${run.result.max_concurrency} at once` : run.name);

const usable = (runs) => listed(runs).filter((run) => userSpeed(run) > 0 &&
  kPerGpu.output[1](run) > 0);

function paintUsers(runs, state, figure, colors) {
  const y = kPerGpu[state.of][1];
  const shown = usable(runs);
  const groups = groupRuns(shown, kLoadKeys, loadOf);
  const legend = groups.length > 0 ? drawLegend(figure, groupItems(groups), colors, 60) : 8;
  const place = {left: 70, right: figure.width - 18, top: legend + 26, bottom: figure.height - 48};
  const panel = addPanel(figure, {...place, points: [], boxes: [],
    x: rateScale(shown.map(userSpeed), [place.left, place.right]),
    y: rateScale(shown.map(y), [place.bottom, place.top])});
  axisBottom(figure, panel, {format: axisNumber, label: axisName('output_tokens_per_s_per_user'),
    ticks: panel.x.base ? logTicks(panel.x, place.right - place.left) : null}, colors);
  axisLeft(figure, panel, {format: axisNumber, label: kPerGpu[state.of][0](),
    ticks: panel.y.base ? logTicks(panel.y, place.bottom - place.top) : null}, colors);
  const fronts = modelSets(shown).map((set) => paretoFront(set, (run) => -userSpeed(run), y));
  const line = d3.line().x((run) => panel.x(userSpeed(run))).y((run) => panel.y(y(run)));
  for (const front of fronts) {
    figure.svg.append('path').attr('class', 'front').attr('d', line(front)).attr('fill', 'none')
      .attr('stroke', colors.grid).attr('stroke-width', 9).attr('stroke-linejoin', 'round')
      .attr('stroke-linecap', 'round');
  }
  const grouped = new Map(groups.flatMap((g) => g.points.map(({run}) => [run, g])));
  for (const group of groups) {
    figure.svg.append('path').attr('fill', 'none').attr('stroke', group.color)
      .attr('stroke-width', group.isGrey ? 1 : 2).attr('stroke-dasharray', group.dash)
      .attr('d', line(group.points.map(({run}) => run)));
  }
  const inOrder = [...shown].sort((a, b) => a.isSelected - b.isSelected);
  for (const run of inOrder) {
    const style = grouped.get(run) || run;
    const px = panel.x(userSpeed(run)), py = panel.y(y(run));
    figure.svg.append('path').attr('transform', `translate(${px},${py})`).attr('fill', style.color)
      .attr('d', symbolPath(style.marker, style.isGrey ? 26 : run.isSelected ? 90 : 50))
      .attr('stroke', run.isSelected && shown.some((other) => !other.isSelected)
        ? colors.text : style.color).attr('stroke-width', 1.4);
    panel.points.push({x: px, y: py, run, color: style.color});
  }
  const isNamed = ({run}) => run.isSelected ||
    (fronts.some((front) => front.includes(run)) && !(grouped.get(run) || run).isGrey);
  nameParetoPoints(figure, panel, panel.points.filter(isNamed), colors,
    (run) => (grouped.has(run) ? loadText(run) : run.name));
}

function usersFigure(runs) {
  if (usable(runs).length < 2) return null;
  const state = {of: 'output'};
  const figure = new Figure({
    id: 'users', title: 'User speed against GPU throughput', view: null,
    lead: 'User speed (interactivity) is 1 / mean TPOT. Higher points have more throughput per ' +
      'GPU, points further right have faster answers. A line joins the loads of one setting. ' +
      'The broad grey line is the Pareto front.',
    draw: {
      height: (width) => {
        const groups = groupRuns(usable(runs), kLoadKeys, loadOf);
        return fitted(380) +
          (groups.length > 0 ? legendLayout(groupItems(groups), width, 60).height : 0);
      },
      paint: (self, context, colors) => paintUsers(runs, state, self, colors)},
    hover: (self, panel, x, y) => {
      const found = hoverPoints(panel, x, y);
      if (!found) return null;
      const user = 'output_tokens_per_s_per_user';
      found.lines.unshift([axisName(user), figureText(user, userSpeed(found.run))],
        ...Object.values(kPerGpu).map(([name, of]) => [name(), formatNumber(of(found.run))]));
      return found;
    }, picks: true,
  });
  figure.addChoice('per GPU', Object.entries(kPerGpu).map(([key, [name]]) => [key, name()]),
    (value) => { state.of = value; });
  return figure;
}
