// SPDX-License-Identifier: Apache-2.0
// Puts the report together: figures that have data, one line for those that have none, the theme,
// and saving pictures.

const kFigures = [];

// A figure that fails leaves the others alone.
function attempt(name, action) {
  try {
    return action();
  } catch (error) {
    console.error(`figure ${name}: ${error.stack}`);
    return null;
  }
}

function renderFigure(figure) {
  attempt(figure.id, () => {
    if (figure.prepare) figure.prepare();
    figure.render();
  });
}

function renderAll() {
  for (const figure of kFigures) renderFigure(figure);
  summaryTable.update();
}

let summaryTable = null;
const toggleRun = (run) => summaryTable.toggle(run);

// Draws the figures anew: first those in sight, then the others one by one, so that the page stays
// quick. Figures of a single run show `run`, unless it is null.
function runsChanged(run) {
  const isInSight = ({node}) => {
    const {top, bottom} = node.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  };
  for (const figure of kFigures) {
    if (figure.onRuns) figure.onRuns();
    if (figure.show && run && run.detail) figure.show(run);
  }
  const queue = [...kFigures].sort((a, b) => isInSight(b) - isInSight(a));
  clearTimeout(runsChanged.timer);
  const next = () => {
    do renderFigure(queue.shift()); while (queue.length > 0 && isInSight(queue[0]));
    if (queue.length > 0) runsChanged.timer = setTimeout(next);
  };
  if (queue.length > 0) next();
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById('theme').textContent = name === 'dark' ? 'light' : 'dark';
  renderAll();
}

// On paper a timeline that does not fit below the summary would leave half of that page empty: a
// low figure stands before it, and where the summary is long another.
function orderFigures() {
  const timeline = kFigures.find((figure) => figure.id === 'timeline');
  const isTall = isPrinting && timeline && timeline.height > 520;
  const low = kFigures.filter(({id}) => id === 'chunks' || id === 'pareto');
  const first = isTall ? low.slice(0, summaryTable.runs.length > 12 ? 2 : 1) : [];
  const ordered = [...kFigures].sort((a, b) => first.includes(b) - first.includes(a));
  document.getElementById('figures').append(...ordered.map((figure) => figure.node));
}

function prepareTheme() {
  const button = document.getElementById('theme');
  button.hidden = false;
  button.textContent = theme().name === 'dark' ? 'light' : 'dark';
  button.setAttribute('aria-label', 'switch between light and dark');
  button.addEventListener('click', () => setTheme(theme().name === 'dark' ? 'light' : 'dark'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => renderAll());
  const print = (isOn) => {
    if (isPrinting === isOn) return;
    isPrinting = isOn;
    const root = document.documentElement;
    document.body.classList.toggle('printing', isOn);
    document.querySelector('#reference details').open = isOn;
    if (isOn) {
      prepareTheme.before = root.dataset.theme;
      root.dataset.theme = 'light';
    } else if (prepareTheme.before) {
      root.dataset.theme = prepareTheme.before;
    } else {
      delete root.dataset.theme;
    }
    renderAll();
    orderFigures();
  };
  addEventListener('beforeprint', () => print(true));
  addEventListener('afterprint', () => print(false));
}

// The figure as one SVG: background, canvas as a picture, then the lines and texts.
function figureSvg(figure) {
  if (figure.overlay) figure.overlay.selectAll('*').remove();
  const {width, height} = figure;
  const head = 34;
  const svg = d3.create('svg').attr('xmlns', 'http://www.w3.org/2000/svg')
    .attr('width', width).attr('height', height + head)
    .attr('viewBox', `0 ${-head} ${width} ${height + head}`).attr('font-family', kFont)
    .attr('font-size', 12);
  svg.append('rect').attr('y', -head).attr('width', width).attr('height', height + head)
    .attr('fill', theme().panel);
  svg.append('text').attr('x', 12).attr('y', -12).attr('font-size', 15).attr('font-weight', 700)
    .attr('fill', theme().text)
    .text(`${document.querySelector('h1').textContent}: ${figure.title}`);
  svg.append('image').attr('width', width).attr('height', height)
    .attr('href', figure.canvas.toDataURL('image/png'));
  svg.node().append(figure.svg.node().cloneNode(true));
  return {text: new XMLSerializer().serializeToString(svg.node()), width, height: height + head};
}

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = element('a', {href: url, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function fileName(figure, extension) {
  const title = document.querySelector('h1').textContent.replace(/[^\w.-]+/g, '_');
  return `${title}-${figure.id}.${extension}`;
}

function saveSvg(figure) {
  download(new Blob([figureSvg(figure).text], {type: 'image/svg+xml'}), fileName(figure, 'svg'));
}

// Resolves with the PNG at twice the size on screen.
function figurePng(figure) {
  const {text, width, height} = figureSvg(figure);
  const image = new Image();
  return new Promise((resolve, reject) => {
    image.onload = () => {
      const canvas = element('canvas', {width: width * 2, height: height * 2});
      canvas.getContext('2d').drawImage(image, 0, 0, width * 2, height * 2);
      canvas.toBlob((blob) => resolve(blob), 'image/png');
    };
    image.onerror = () => reject(new Error(`cannot draw ${figure.id}`));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  });
}

function savePng(figure) {
  figurePng(figure).then((blob) => download(blob, fileName(figure, 'png')));
}

// Why no single run can be drawn; `other` where it is not for want of lines or steps.
function noRunReason(runs, other) {
  const recorded = runs.filter((run) => run.detail);
  if (recorded.length === 0) {
    return runs.every((run) => run.result.backend === 'http')
      ? 'needs the start and every gap of each request, which no result here has'
      : 'needs requests.jsonl and steps.jsonl of a run (results.requests and results.steps)';
  }
  if (recorded.every((run) => !run.detail.hasSteps)) {
    return other || 'needs steps, which a client of a server cannot see';
  }
  return recorded.every((run) => run.detail.steps.end.length === 0) ? 'no request ran' : other;
}

function noParetoReason(runs) {
  if (runs.length < 2) return 'needs two runs';
  return runs.some((run) => run.result.p99_itl_ms > 0) ? 'only one run has a p99 ITL above 0'
    : 'no request got a second token';
}

// Names of the figures, and why one cannot be drawn.
const kMissing = {
  timeline: ['ITL timeline', (runs) => noRunReason(runs, 'no request got a second token')],
  distribution: ['Latency distribution', (runs) => noRunReason(runs, 'no request completed')],
  chunks: ['Latency against chunk size', (runs) => (sweptChunks(runs).groups.length > 0
    ? 'no request completed' : 'needs two runs that differ in one such setting, ' +
      'for example scheduler.prefill_chunk_size')],
  composition: ['Step composition', (runs) => noRunReason(runs)],
  requests: ['Request timeline', (runs) => noRunReason(runs)],
  breakdown: ['Parts of the time to first token', (runs) => (runs.some(({detail}) =>
    detail && detail.hasSteps) ? noRunReason(runs, 'no request completed') : noRunReason(runs))],
  replicas: ['Replicas over time', () => 'needs a run of several replicas'],
  drafts: ['Drafts over load', () => 'needs runs that differ in their load'],
  load: ['Goodput against load',
    () => 'needs an slo, and runs that differ in their arrival rate'],
  pareto: ['Throughput against p99 ITL', noParetoReason],
  users: ['User speed against GPU throughput',
    () => 'needs two runs with a time per output token'],
  heat: ['Two settings at once',
    () => 'needs runs of a grid of two settings, at least two values each'],
  memory: ['KV cache and queue over time', (runs) => noRunReason(runs)],
  measured: ['Simulated against measured', (runs) => (measuredPairs(runs).length > 0
    ? 'no request got a second token in both runs' : 'needs a simulated and a measured run of ' +
      'the same variant, model and workload, with requests.jsonl and steps.jsonl (metronome ' +
      'report SIMULATED MEASURED --out FILE)')],
};

// Of many runs, the figures that compare them come first.
const kComparing = ['heat', 'load', 'drafts', 'users', 'pareto', 'chunks'];

function figureMakers(runs, time) {
  const makers = {
    timeline: () => timelineFigure(runs, time), distribution: () => distributionFigure(runs),
    ...(runs.some(hasReplicas) ? {replicas: () => replicaFigure(runs, time)} : {}),
    chunks: () => chunkFigure(runs), composition: () => compositionFigure(runs, time),
    requests: () => requestFigure(runs, time), breakdown: () => breakdownFigure(runs),
    ...(runs.some(hasDrafts) ? {drafts: () => draftFigure(runs)} : {}),
    load: () => loadFigure(runs), pareto: () => paretoFigure(runs), users: () => usersFigure(runs),
    heat: () => heatFigure(runs), memory: () => memoryFigure(runs, time),
    measured: () => measuredFigure(runs),
  };
  const ids = Object.keys(makers);
  const first = runs.length > kDrawnAtOnce ? kComparing.filter((id) => makers[id]) : [];
  return [...first, ...ids.filter((id) => !first.includes(id))].map((id) => [id, makers[id]]);
}

function main() {
  const runs = readRuns();
  readSettings(runs);
  const end = d3.max(runs.filter((run) => run.detail), ({detail: {steps, gaps}}) =>
    Math.max(d3.max(steps.end) || 0, d3.max(gaps.after) || 0));
  const time = new View([0, (end || 1) * 1.005]);
  const parent = document.getElementById('figures');
  const contents = document.getElementById('contents');
  const leftOut = document.getElementById('left-out');
  summaryTable = new SummaryTable(runs, runsChanged);
  for (const [id, make] of figureMakers(runs, time)) {
    const figure = attempt(id, make);
    if (!figure) {
      const [name, reason] = kMissing[id];
      leftOut.append(element('li', {}, `${name}: not drawn, ${reason(runs)}.`));
      continue;
    }
    kFigures.push(figure);
    parent.append(figure.node);
    contents.append(element('a', {href: `#${figure.id}`}, figure.title.split(':')[0]));
  }
  writeConclusion(runs);
  prepareTheme();
  renderAll();
  addEventListener('scroll', hideTooltip, {passive: true});
  let width = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth === width) return;
    width = innerWidth;
    updateCues();
    for (const figure of kFigures) figure.schedule();
  });
  document.documentElement.dataset.reportDrawn = 'true';
}

main();
