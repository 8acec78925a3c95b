// SPDX-License-Identifier: Apache-2.0
// Speculative decoding over load: draft tokens accepted and wasted, and what users see of it.

const hasDrafts = (run) => run.result.spec_decode_num_drafts > 0;
const perSecond = (key) => (run) => (hasDrafts(run) && run.result.duration > 0
  ? run.result[key] / run.result.duration : NaN);
const kDraftPanels = [
  {label: 'draft tokens/s (accepted solid, wasted hollow)',
    of: perSecond('spec_decode_accepted_tokens'), hollow: perSecond('wasted_draft_tokens')},
  {get label() { return axisName('mean_tpot_ms'); }, of: (run) => run.result.mean_tpot_ms}];

// Lines over load; those without drafts show what drafts are compared with.
const draftGroups = (runs) => groupRuns(runs.filter((run) => run.result.completed > 0),
  kLoadKeys, loadOf);

function paintDrafts(runs, figure, colors) {
  const groups = draftGroups(runs);
  const legend = drawLegend(figure, groupItems(groups), colors, 60);
  const places = panelPlaces(figure, kDraftPanels.length, legend + 26, fitted(260));
  const shown = groups.flatMap((g) => g.points.map((p) => p.run));
  const name = shown.some(isOpenLoop) ? 'request rate, 1/s' : 'concurrent requests';
  kDraftPanels.forEach((quantity, k) => {
    const place = places[k];
    const values = shown.flatMap((run) => [quantity.of(run),
      quantity.hollow ? quantity.hollow(run) : NaN]).filter(Number.isFinite);
    const panel = addPanel(figure, {...place, points: [], boxes: [],
      x: loadScale(figure).domain(figure.view.now).range([place.left, place.right]),
      y: d3.scaleLinear().domain([0, (d3.max(values) || 1) * 1.1])
        .range([place.bottom, place.top])});
    axisBottom(figure, panel, {format: axisNumber, label: name,
      ticks: loadScale(figure).base ? logTicks(panel.x, place.right - place.left) : null}, colors);
    axisLeft(figure, panel, {format: (v) => grouped(+v.toPrecision(3)), label: quantity.label},
      colors);
    noteGroupLines(panel, groups, quantity.of);
    if (quantity.hollow) {
      paintGroupLines(figure, panel, groups, quantity.hollow, {isHollow: true, dash: '4 3'});
    }
    paintGroupLines(figure, panel, groups, quantity.of);
  });
}

function draftFigure(runs) {
  if (!runs.some(hasDrafts)) return null;
  const groups = draftGroups(runs);
  if (groups.length === 0) return null;
  const [least, most] = d3.extent(groups.flatMap((g) => g.points.map((p) => p.x)));
  return new Figure({
    id: 'drafts', title: 'Drafts over load',
    view: new View(least > 0 && most / least > 20 ? [least / 1.15, most * 1.15] : [0, most * 1.06]),
    lead: 'Accepted draft tokens are output; wasted ones were computed for nothing. Drafts pay ' +
      'where their line of the time per output token (TPOT) is below the one without.',
    draw: {
      height: (width) => legendLayout(groupItems(draftGroups(runs)), width, 60).height + 26 +
        panelsHeight(width, kDraftPanels.length, fitted(260)),
      paint: (self, context, colors) => paintDrafts(runs, self, colors),
    },
    hover: (self, panel, x, y) => hoverPoints(panel, x, y), picks: true,
  });
}
