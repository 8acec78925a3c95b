// SPDX-License-Identifier: Apache-2.0
// The replicas of a fleet over time as a heat map. A row picks the replica whose steps other
// figures show.

const hasReplicas = ({detail}) => detail && detail.replicas;

const kReplicaQuantities = [
  {key: 'busy', name: 'busy, %', scale: 0.1},
  {key: 'running', name: 'requests running', scale: 0.001},
  {key: 'waiting', name: 'requests waiting', scale: 0.001},
  {key: 'kv', name: 'KV cache in use, %', scale: 0.1}];

function decodeReplicas(replicas) {
  const keys = kReplicaQuantities.map(({key}) => key);
  const {steps, ...columns} = replicas;
  return Object.assign(new Columns(columns, keys), {shown: 0,
    steps: steps.map((texts) => new Columns(texts, kStepDeltas))});
}

// Other figures show the steps of this replica.
function showReplica(run, row) {
  const {replicas} = run.detail;
  if (row >= replicas.steps.length) return;
  replicas.shown = row;
  run.detail.steps = replicas.steps[row];
  renderAll();
}

const replicaRowHeight = ({num_rows: rows}) => (rows > 64 ? 6 : rows > 24 ? 12 : 22);
const kReplicasTop = 74;

function paintReplicas(state, figure, context, colors) {
  const {replicas} = state.run.detail;
  const {num_rows: rows, num_bins: bins, bin_ns: width} = replicas;
  const quantity = kReplicaQuantities.find(({key}) => key === state.key);
  const values = replicas[quantity.key];
  const row = replicaRowHeight(replicas);
  const panel = timePanel(figure, kReplicasTop, rows * row, d3.scaleLinear().domain([rows, 0]),
    {row});
  const most = quantity.scale === 0.1 ? 1000 : Math.max(d3.max(values), 1000);
  context.save();
  context.beginPath();
  context.rect(panel.left, panel.top, panel.right - panel.left, panel.bottom - panel.top);
  context.clip();
  for (let r = 0; r < rows; ++r) {
    for (let b = 0; b < bins; ++b) {
      const left = panel.x(b * width / 1000), right = panel.x((b + 1) * width / 1000);
      context.fillStyle = d3.interpolateCividis(Math.min(1, values[r * bins + b] / most));
      context.fillRect(left, panel.top + r * row, right - left + 0.5, row - (row > 8 ? 1 : 0));
    }
  }
  context.restore();
  timeAxis(figure, panel, true, colors);
  const every = Math.ceil(13 / row);
  for (let r = 0; r < rows; r += every) {
    figure.svg.append('text').attr('x', panel.left - 6).attr('text-anchor', 'end')
      .attr('y', panel.top + (r + 0.5) * row + 4).attr('font-size', 11)
      .attr('fill', r === replicas.shown ? colors.text : colors.muted)
      .attr('font-weight', r === replicas.shown ? 700 : 400).text(r);
  }
  figure.svg.append('rect').attr('x', panel.left).attr('width', panel.right - panel.left)
    .attr('y', panel.top + replicas.shown * row).attr('height', row).attr('fill', 'none')
    .attr('stroke', colors.text).attr('stroke-width', 1.5);
  paintReplicaLegend(figure, quantity, most, colors);
}

function paintReplicaLegend(figure, quantity, most, colors) {
  const left = 58, width = Math.min(180, figure.width - 150), top = 26;
  const text = (x, y, anchor, content, fill) => figure.svg.append('text').attr('x', x)
    .attr('y', y).attr('text-anchor', anchor).attr('fill', fill).attr('font-size', 11.5)
    .text(content);
  text(left, 18, 'start', quantity.name, colors.text);
  for (let i = 0; i < 60; ++i) {
    figure.svg.append('rect').attr('x', left + i * width / 60).attr('y', top)
      .attr('width', width / 60 + 0.5).attr('height', 10)
      .attr('fill', d3.interpolateCividis(i / 59));
  }
  text(left, top + 24, 'start', '0', colors.muted);
  text(left + width, top + 24, 'end', grouped(+(most * quantity.scale).toPrecision(3)),
    colors.muted);
  text(left, kReplicasTop - 8, 'end', 'replica', colors.muted);
}

function hoverReplica(state, panel, x, y) {
  const {run} = state, {replicas} = run.detail;
  const row = Math.floor((y - panel.top) / panel.row);
  const bin = Math.floor(panel.x.invert(x) * 1000 / replicas.bin_ns);
  if (row < 0 || row >= replicas.num_rows || bin < 0 || bin >= replicas.num_bins) return null;
  const at = row * replicas.num_bins + bin;
  return {title: `replica ${row}, ${formatSeconds(bin * replicas.bin_ns / 1000)} to ` +
      formatSeconds((bin + 1) * replicas.bin_ns / 1000),
  lines: kReplicaQuantities.map(({key, name, scale}) =>
    [name, formatNumber(replicas[key][at] * scale, 1)]),
  note: row < replicas.steps.length ? 'a click shows its steps below' : '',
  pick: () => showReplica(run, row)};
}

function replicaFigure(runs, view) {
  const rows = runs.filter(hasReplicas);
  if (rows.length === 0) return null;
  const state = {run: rows.find((run) => run.isSelected) || rows[0], key: 'busy'};
  const figure = new Figure({
    id: 'replicas', title: 'Replicas over time', view, hasCanvas: true,
    lead: 'One row per replica. A click on a row shows its steps in the figures of steps, cache ' +
      'and queue.',
    draw: {height: () => kReplicasTop + 44 +
        state.run.detail.replicas.num_rows * replicaRowHeight(state.run.detail.replicas),
    paint: (self, context, colors) => paintReplicas(state, self, context, colors)},
    hover: (self, panel, x, y) => hoverReplica(state, panel, x, y),
  });
  figure.addChoice('of', kReplicaQuantities.map(({key, name}) => [key, name]), (value) => {
    state.key = value;
  });
  const select = figure.addChoice('run', runNames(rows),
    (value) => { state.run = runs[Number(value)]; });
  figure.show = (run) => { if (rows.includes(run)) state.run = run; };
  figure.prepare = () => {
    const {replicas} = state.run.detail;
    select.value = String(state.run.index);
    figure.caption.textContent = `Replica ${replicas.shown} is shown in the figures of steps.` +
      (replicas.num_rows < replicas.num_replicas
        ? ` The first ${replicas.num_rows} of ${grouped(replicas.num_replicas)} replicas.` : '');
  };
  return figure;
}
