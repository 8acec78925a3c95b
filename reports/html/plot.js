// SPDX-License-Identifier: Apache-2.0
// A figure: a canvas for what is many, an SVG for what is few and read, zoom and hover.

// A range of x values that figures look at; those that share one stay together.
class View {
  constructor(full) {
    this.full = full;
    this.now = full.slice();
    this.listeners = [];
  }
  get isZoomed() { return this.now[0] !== this.full[0] || this.now[1] !== this.full[1]; }
  set(domain) {
    const [low, high] = this.full;
    const a = Math.max(low, Math.min(...domain));
    const b = Math.min(high, Math.max(...domain));
    if (!(b > a) || (b - a) < (high - low) * 1e-7) return;
    this.now = [a, b];
    for (const listener of this.listeners) listener();
  }
  reset() { this.set(this.full); }
}

class Figure {
  // `view`: the x range; null where there is nothing to zoom. `picks`: a click on a point selects
  // its run.
  constructor({id, title, lead, view, draw, hover, hint, caption, picks, hasCanvas = false}) {
    Object.assign(this, {id, title, view, draw, hoverAt: hover, picks, hasCanvas});
    this.panels = [];
    this.stage = element('div', {class: 'stage', tabindex: '0', role: 'img', 'aria-label': title});
    this.controls = element('div', {class: 'controls'});
    this.caption = element('p', {class: 'caption'}, caption || '');
    this.hint = element('p', {class: 'hint tight'}, hint || '');
    this.below = element('div');
    this.node = element('section',
      {class: 'figure', id, 'data-figure': id, 'data-canvas': hasCanvas},
      element('h2', {}, title), element('p', {class: 'lead'}, lead), this.controls, this.stage,
      this.hint, this.caption, this.below);
    this.canvas = element('canvas', {'aria-hidden': 'true'});
    this.svg = d3.create('svg').attr('xmlns', 'http://www.w3.org/2000/svg');
    this.stage.append(this.canvas, this.svg.node());
    this.overlay = null;
    this.addButtons();
    this.listen();
    if (view) view.listeners.push(() => this.schedule());
  }

  addButtons() {
    const group = element('div', {class: 'push'});
    if (this.view) {
      this.resetButton = element('button', {type: 'button', onclick: () => this.view.reset()},
        'reset zoom');
      group.append(this.resetButton);
    }
    group.append(
      element('button', {type: 'button', onclick: () => saveSvg(this)}, 'SVG'),
      element('button', {type: 'button', onclick: () => savePng(this)}, 'PNG'));
    this.buttons = group;
    this.controls.append(group);
  }

  // A choice in front of the buttons. Calls `change` with the chosen value.
  addChoice(label, options, change) {
    const select = element('select', {onchange: () => { change(select.value); this.render(); }});
    for (const [value, text] of options) select.append(element('option', {value}, text));
    this.controls.insertBefore(element('label', {}, `${label} `, select), this.buttons);
    return select;
  }

  schedule() {
    hideTooltip();
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => { this.isScheduled = false; this.render(); });
  }

  // Sizes canvas and SVG, and paints.
  render() {
    const started = performance.now();
    const width = Math.max(240, this.stage.clientWidth);
    this.width = width;
    this.panels = [];
    this.svg.selectAll('*').remove();
    const height = this.draw.height(width);
    this.height = height;
    this.stage.style.height = `${height}px`;
    const ratio = Math.max(1, Math.min(3, window.devicePixelRatio || 1));
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.svg.attr('width', width).attr('height', height).attr('viewBox', `0 0 ${width} ${height}`)
      .attr('font-family', kFont).attr('font-size', 12);
    const context = this.canvas.getContext('2d');
    this.context = context;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.draw.paint(this, context, theme());
    this.overlay = this.svg.append('g').attr('class', 'overlay');
    if (this.resetButton) this.resetButton.disabled = !this.view.isZoomed;
    this.node.dataset.drawMs = (performance.now() - started).toFixed(1);
    this.node.dataset.drawn = 'true';
  }

  panelAt(x, y) {
    return this.panels.find((p) => x >= p.left - 4 && x <= p.right + 4 &&
                                   y >= p.top - 14 && y <= p.bottom + 4);
  }

  position(event) {
    const box = this.stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  listen() {
    const stage = this.stage;
    stage.addEventListener('pointermove', (event) => this.onMove(event));
    stage.addEventListener('pointerleave', () => { if (!this.drag) this.clearHover(); });
    stage.addEventListener('pointerdown', (event) => this.onDown(event));
    stage.addEventListener('pointerup', (event) => this.onUp(event));
    stage.addEventListener('pointercancel', () => { this.drag = null; this.clearHover(); });
    stage.addEventListener('click', (event) => this.onClick(event));
    stage.addEventListener('dblclick', () => { if (this.view) this.view.reset(); });
    stage.addEventListener('wheel', (event) => {
      if (!this.view || !(event.ctrlKey || event.metaKey || event.shiftKey)) return;
      event.preventDefault();
      const delta = event.deltaY || event.deltaX;
      this.zoom(delta > 0 ? 1.25 : 0.8, this.position(event)[0]);
    }, {passive: false});
    stage.addEventListener('keydown', (event) => this.onKey(event));
  }

  onClick(event) {
    const [x, y] = this.position(event);
    const panel = this.panelAt(x, y);
    const found = panel && this.hoverAt && this.hoverAt(this, panel, x, y);
    if (!found || this.wasDragged) return;
    // A finger does not hover: the first tap tells, the second one selects.
    if (event.pointerType === 'touch' && !(found.run && this.tapped === found.run)) {
      this.tapped = found.run;
      const note = [found.note, this.picks && found.run ? 'tap again to select or deselect' : '']
        .filter((text) => text).join('; ');
      return this.showFound({...found, note}, panel, event.clientX, event.clientY);
    }
    if (found.pick) return found.pick();
    if (!this.picks || !found.run) return;
    this.tapped = null;
    hideTooltip();
    toggleRun(found.run);
  }

  // Marks, and what is known of them.
  showFound(found, panel, x, y) {
    this.overlay.selectAll('*').remove();
    for (const mark of found.marks || []) drawHoverMark(this.overlay, mark, panel);
    showTooltip(found, x, y);
  }

  // Arrows go from point to point; Enter selects.
  onPointKey(event) {
    const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
    const step = steps[event.key], isEnter = event.key === 'Enter' || event.key === ' ';
    const targets = this.panels.flatMap((panel) => (panel.points || []).map((point) =>
      ({panel, x: point.x, y: point.y})));
    if (!step && !isEnter && event.key !== 'Escape' || targets.length === 0) return;
    event.preventDefault();
    if (event.key === 'Escape') {
      this.at = null;
      return this.clearHover();
    }
    if (step) this.at = nextTarget(targets, this.at, step);
    const found = this.at && this.hoverAt(this, this.at.panel, this.at.x, this.at.y);
    if (!found) return;
    if (isEnter && found.pick) return found.pick();
    if (isEnter && this.picks && found.run) return toggleRun(found.run);
    const box = this.stage.getBoundingClientRect(), {panel, x, y} = this.at;
    this.showFound({...found, marks: [...(found.marks || []), {x, y, r: 9}]}, panel,
      box.left + x, box.top + y);
  }

  onKey(event) {
    const panel = this.panels[0];
    if (!panel || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!this.view) return this.onPointKey(event);
    const actions = {
      '+': () => this.zoom(0.7), '=': () => this.zoom(0.7), '-': () => this.zoom(1.4),
      '0': () => this.view.reset(), 'Escape': () => this.view.reset(),
      'ArrowLeft': () => this.pan(-0.15), 'ArrowRight': () => this.pan(0.15),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  // Both work on pixels, so that they do the same on linear and logarithmic axes.
  zoom(factor, x) {
    const panel = this.panels[0];
    const middle = x === undefined ? (panel.left + panel.right) / 2 : x;
    this.view.set([panel.x.invert(middle - (middle - panel.left) * factor),
                   panel.x.invert(middle + (panel.right - middle) * factor)]);
  }
  pan(share) {
    const panel = this.panels[0];
    const shift = (panel.right - panel.left) * share;
    const [low, high] = this.view.full;
    const left = panel.x.invert(panel.left + shift);
    const right = panel.x.invert(panel.right + shift);
    if (left >= low && right <= high) this.view.set([left, right]);
  }

  onDown(event) {
    const [x, y] = this.position(event);
    const panel = this.panelAt(x, y);
    if (!this.view || !panel || event.button !== 0) return;
    this.drag = {x, panel};
    this.stage.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    const [x, y] = this.position(event);
    if (this.drag && Math.abs(x - this.drag.x) > 3) {
      hideTooltip();
      this.overlay.selectAll('*').remove();
      const {panel} = this.drag;
      const clamp = (v) => Math.max(panel.left, Math.min(panel.right, v));
      const [a, b] = [clamp(this.drag.x), clamp(x)].sort((p, q) => p - q);
      const top = d3.min(this.panels, (p) => p.top);
      const bottom = d3.max(this.panels, (p) => p.bottom);
      this.overlay.append('rect').attr('x', a).attr('width', b - a).attr('y', top)
        .attr('height', bottom - top).attr('fill', theme().decode).attr('fill-opacity', 0.18);
      return;
    }
    const panel = this.panelAt(x, y);
    if (!panel || !this.hoverAt) return this.clearHover();
    const found = this.hoverAt(this, panel, x, y);
    if (!found) return this.clearHover();
    this.showFound(found, panel, event.clientX, event.clientY);
  }

  onUp(event) {
    const drag = this.drag;
    this.drag = null;
    this.wasDragged = false;
    if (!drag) return;
    const x = this.position(event)[0];
    if (Math.abs(x - drag.x) < 6) return;
    this.wasDragged = true;
    this.clearHover();
    this.view.set([drag.panel.x.invert(drag.x), drag.panel.x.invert(x)]);
  }

  clearHover() {
    hideTooltip();
    if (this.overlay) this.overlay.selectAll('*').remove();
  }
}

// The nearest of the targets in a direction; without a place to begin, the first.
function nextTarget(targets, at, [dx, dy]) {
  const ahead = at ? targets.filter(({x, y}) => (x - at.x) * dx + (y - at.y) * dy > 0.5) : targets;
  if (ahead.length === 0) return at;
  const cost = ({x, y}) => Math.abs((x - at.x) * dx + (y - at.y) * dy) +
    2 * Math.abs((x - at.x) * dy - (y - at.y) * dx);
  return at ? ahead[d3.minIndex(ahead, cost)] : ahead[0];
}

function drawHoverMark(overlay, mark, panel) {
  const colors = theme();
  if (mark.y === undefined) {
    overlay.append('line').attr('x1', mark.x).attr('x2', mark.x).attr('y1', panel.top)
      .attr('y2', panel.bottom).attr('stroke', colors.muted).attr('stroke-dasharray', '3 3');
    return;
  }
  overlay.append('circle').attr('cx', mark.x).attr('cy', mark.y).attr('r', mark.r || 5)
    .attr('fill', 'none').attr('stroke', mark.color || colors.text).attr('stroke-width', 2);
}

// {title, lines: [[label, value, color?]], note?}
function showTooltip(found, x, y) {
  let box = document.getElementById('tooltip');
  if (!box) document.body.append(box = element('div', {id: 'tooltip', role: 'status'}));
  box.replaceChildren(element('div', {class: 'title'}, found.title));
  for (const [label, value, color] of found.lines) {
    const name = element('span', {});
    if (color) {
      const key = element('span', {class: 'key'});
      key.style.background = color;
      name.append(key);
    }
    name.append(label);
    box.append(element('div', {class: 'row'}, name, element('span', {}, value)));
  }
  if (found.note) box.append(element('div', {class: 'hint'}, found.note));
  box.hidden = false;
  const {width, height} = box.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - width - 12 : x + 16;
  const top = y + 16 + height > innerHeight ? y - height - 12 : y + 16;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, top)}px`;
}
function hideTooltip() {
  const box = document.getElementById('tooltip');
  if (box) box.hidden = true;
}

// Axes. `scale` knows its pixels; colours are attributes, so that a saved picture keeps them.
function styleAxis(group, colors) {
  group.attr('font-family', kFont).attr('font-size', 11.5);
  group.selectAll('text').attr('fill', colors.muted);
  group.selectAll('line').attr('stroke', colors.axis);
  group.select('.domain').attr('stroke', colors.axis);
}

// Behind the data: on the canvas where there is one, because the SVG lies above it.
function gridLines(figure, panel, ticks, isX, colors) {
  const scale = isX ? panel.x : panel.y;
  const group = figure.hasCanvas ? null
    : figure.svg.append('g').attr('stroke', colors.grid).attr('stroke-width', 1);
  const context = figure.context;
  context.fillStyle = colors.grid;
  for (const tick of ticks) {
    const p = Math.round(scale(tick)) + 0.5;
    if (!group) {
      if (isX) context.fillRect(p - 0.5, panel.top, 1, panel.bottom - panel.top);
      else context.fillRect(panel.left, p - 0.5, panel.right - panel.left, 1);
      continue;
    }
    group.append('line')
      .attr('x1', isX ? p : panel.left).attr('x2', isX ? p : panel.right)
      .attr('y1', isX ? panel.top : p).attr('y2', isX ? panel.bottom : p);
  }
}

// Powers of ten and, where there is room, their 2s and 5s.
function logTicks(scale, pixels) {
  const [low, high] = scale.domain();
  const decades = Math.max(0.1, Math.log10(high / low));
  // Less than two decades may have one power of ten or none.
  const steps = pixels / decades > (decades < 2 ? 60 : 130) ? [1, 2, 5] : [1];
  const every = pixels / decades < 30 ? Math.ceil(30 * decades / pixels) : 1;
  const ticks = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e) {
    if (((e % every) + every) % every !== 0) continue;
    for (const s of steps) {
      const tick = s * 10 ** e;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks.length >= 2 ? ticks : scale.ticks(4);
}

function axisBottom(figure, panel, {ticks, format, label}, colors) {
  const values = ticks || panel.x.ticks(Math.max(3, (panel.right - panel.left) / 90));
  gridLines(figure, panel, values, true, colors);
  const axis = d3.axisBottom(panel.x).tickValues(values).tickFormat(format).tickSizeOuter(0);
  const group = figure.svg.append('g').attr('transform', `translate(0,${panel.bottom})`).call(axis);
  styleAxis(group, colors);
  if (label) {
    figure.svg.append('text').attr('x', (panel.left + panel.right) / 2)
      .attr('y', panel.bottom + 36).attr('text-anchor', 'middle').attr('fill', colors.text)
      .text(label);
  }
}

function axisLeft(figure, panel, {ticks, format, label}, colors) {
  const values = ticks || panel.y.ticks(Math.max(2, (panel.bottom - panel.top) / 42));
  gridLines(figure, panel, values, false, colors);
  const axis = d3.axisLeft(panel.y).tickValues(values).tickFormat(format).tickSizeOuter(0);
  const group = figure.svg.append('g').attr('transform', `translate(${panel.left},0)`).call(axis);
  styleAxis(group, colors);
  if (label) {
    figure.svg.append('text').attr('x', panel.left - 44).attr('y', panel.top - 9)
      .attr('fill', colors.text).text(label);
  }
}

// Where an axis that several rows share is broken: what at least half of them need lies below, what
// is more than three times as long lies above. null where no row dwarfs the others. Three rows or
// fewer are drawn whole: there the contrast is what is shown.
function breakOf(maxima) {
  const sorted = maxima.filter((value) => value > 0).sort(d3.ascending);
  if (sorted.length < 4) return null;
  let found = null, most = 3;
  for (let i = Math.ceil(sorted.length / 2); i < sorted.length; ++i) {
    if (sorted[i] / sorted[i - 1] <= most) continue;
    most = sorted[i] / sorted[i - 1];
    found = sorted[i - 1] * 1.15;
  }
  return found;
}

// A linear scale from 0 to `most` from bottom to top. Beyond a break it is compressed into the
// upper third, with `scale.breakAt` for paintBreak().
function brokenScale(most, breakAt, top, bottom) {
  if (breakAt === null || most <= breakAt) {
    return d3.scaleLinear().domain([0, Math.max(most, breakAt || 0) * 1.12]).range([bottom, top]);
  }
  const scale = d3.scaleLinear().domain([0, breakAt, most * 1.04])
    .range([bottom, bottom - (bottom - top) * 0.64, top]);
  scale.breakAt = breakAt;
  return scale;
}
function brokenTicks(scale, pixels) {
  const [, breakAt, most] = scale.domain();
  const count = Math.max(2, Math.round(pixels * 0.64 / 36));
  // The nearest ones to the break would touch each other's labels.
  return [...d3.ticks(0, breakAt, count).filter((tick) => tick < 0.92 * breakAt),
    ...d3.ticks(0, most, 4).filter((tick) =>
      tick > breakAt && scale(breakAt) - scale(tick) > 12).slice(-1)];
}

// The mark of a broken axis, over the data: a cut through the panel, and a zigzag on the axis.
function paintBreak(figure, panel, colors) {
  if (panel.y.breakAt === undefined) return;
  const y = Math.round(panel.y(panel.y.breakAt));
  const group = figure.svg.append('g').attr('class', 'break');
  group.append('rect').attr('x', panel.left).attr('y', y - 2).attr('height', 4)
    .attr('width', panel.right - panel.left).attr('fill', colors.panel);
  for (const edge of [y - 2, y + 2]) {
    group.append('path').attr('fill', 'none').attr('stroke', colors.axis)
      .attr('d', `M${panel.left - 5},${edge + 3}l10,-6`);
    group.append('line').attr('x1', panel.left + 5).attr('x2', panel.right).attr('y1', edge)
      .attr('y2', edge).attr('stroke', colors.axis).attr('stroke-dasharray', '2 3');
  }
}

function addPanel(figure, panel) {
  figure.panels.push(panel);
  return panel;
}

// A label finds its place between boxes {left, right, top, bottom}: those that a panel has noted in
// panel.boxes for what is drawn in it.
function textBox(x, y, text, anchor) {
  const width = textWidth(text);
  const left = x - (anchor === 'start' ? 0 : anchor === 'end' ? width : width / 2);
  return {left, right: left + width, top: y - 11, bottom: y + 3};
}
const boxesMeet = (a, b) =>
  a.left < b.right && a.right > b.left && a.top < b.bottom && a.bottom > b.top;

// Writes a text at the first of the places {x, y, anchor} inside the panel where it meets no box,
// or as few as can be: other texts count most.
function placedLabel(figure, panel, places, text, color, colors) {
  const boxes = panel.boxes || (panel.boxes = []);
  const cost = ({x, y, anchor}) => {
    const box = textBox(x, y, text, anchor);
    if (box.left < panel.left || box.right > panel.right || box.top < panel.top - 22 ||
        box.bottom > panel.bottom) return 1e9;
    return d3.sum(boxes, (other) => (boxesMeet(box, other) ? (other.isText ? 1e4 : 1) : 0));
  };
  const {x, y, anchor} = places[d3.minIndex(places, cost)];
  boxes.push({...textBox(x, y, text, anchor), isText: true});
  label(figure.svg.append('g'), x, y, text, color, colors, anchor);
}

const levelBox = (panel, y) => ({left: panel.left, right: panel.right, top: y - 1, bottom: y + 1});

// Boxes around points, and along the lines from each to the next.
function lineBoxes(points) {
  const radius = 6;
  const boxes = points.map(({x, y}) =>
    ({left: x - radius, right: x + radius, top: y - radius, bottom: y + radius}));
  for (let i = 1; i < points.length; ++i) {
    const [a, b] = [points[i - 1], points[i]];
    const count = Math.max(1, Math.ceil(Math.abs(b.x - a.x) / 6));
    for (let k = 0; k < count; ++k) {
      const [y0, y1] = [k, k + 1].map((i) => a.y + (b.y - a.y) * i / count);
      boxes.push({left: a.x + (b.x - a.x) * k / count, right: a.x + (b.x - a.x) * (k + 1) / count,
        top: Math.min(y0, y1) - 1, bottom: Math.max(y0, y1) + 1});
    }
  }
  return boxes;
}

// A limit across a panel, with its name; of a level the name is where it meets no box.
function limitLine(figure, panel, {x, y, text, isLow, isLeft}, colors) {
  const group = figure.svg.append('g');
  const isVertical = x !== undefined;
  const p = isVertical ? panel.x(x) : panel.y(y);
  const [low, high] = isVertical ? [panel.left, panel.right] : [panel.top, panel.bottom];
  if (!(p >= low - 0.5 && p <= high + 0.5)) return;
  group.append('line').attr('stroke', colors.slo).attr('stroke-width', 1.4)
    .attr('stroke-dasharray', '5 4')
    .attr('x1', isVertical ? p : panel.left).attr('x2', isVertical ? p : panel.right)
    .attr('y1', isVertical ? panel.top : p).attr('y2', isVertical ? panel.bottom : p);
  if (!text) return;
  if (!isVertical) {
    const between = d3.range(1, 12).map((i) =>
      ({x: panel.right - (panel.right - panel.left) * i / 12, anchor: 'middle'}));
    const sides = [{x: panel.right - 4, anchor: 'end'}, ...between,
      {x: panel.left + 5, anchor: 'start'}];
    if (isLeft) sides.reverse();
    const places = [p - 4, p + 13].flatMap((y) => sides.map((side) => ({...side, y})));
    places.push({x: panel.right, y: panel.top - 9, anchor: 'end'});  // above, if all is taken
    placedLabel(figure, panel, places, text, colors.slo, colors);
    return;
  }
  const isRight = p > (panel.left + panel.right) / 2;
  const place = [p + (isRight ? -5 : 5), isLow ? panel.bottom - 8 : panel.top + 12];
  const anchor = isRight ? 'end' : 'start';
  if (panel.boxes) panel.boxes.push({...textBox(...place, text, anchor), isText: true});
  label(group, ...place, text, colors.slo, colors, anchor);
}

// Text with a halo, readable on anything.
function label(group, x, y, text, fill, colors, anchor = 'start') {
  return group.append('text').attr('x', x).attr('y', y).attr('text-anchor', anchor)
    .attr('fill', fill).attr('stroke', colors.panel).attr('stroke-width', 3.5)
    .attr('stroke-linejoin', 'round').attr('paint-order', 'stroke').attr('font-size', 11.5)
    .text(text);
}

const symbolPath = (type, area) => d3.symbol().type(type).size(area)();

// How wide a text is in the figures' font.
function textWidth(text, font = `12px ${kFont}`) {
  const context = textWidth.context ||
    (textWidth.context = document.createElement('canvas').getContext('2d'));
  context.font = font;
  return context.measureText(text).width;
}

// A text that fits, its middle left out: names of runs differ at their ends. Nothing where
// hardly anything fits.
function shortened(text, width, font) {
  if (textWidth(text, font) <= width) return text;
  for (let length = text.length - 1; length >= 8; --length) {
    const head = Math.ceil(length * 0.4);
    const part = `${text.slice(0, head).trimEnd()}…${text.slice(text.length - length + head)}`;
    if (textWidth(part, font) <= width) return part;
  }
  return '';
}

// Names of runs or parts in rows; returns the height they take. Clicking one hides or shows it.
function legendLayout(items, width, left = 12) {
  let x = left, y = 18;
  const places = items.map((item) => {
    const mark = item.box ? 34 : 47;
    const text = shortened(item.text, width - 6 - left - mark);
    const size = mark + textWidth(text);
    if (x > left && x + size > width - 6) { x = left; y += 19; }
    const place = {x, y, item, text};
    x += size;
    return place;
  });
  return {places, height: y + 10};
}

function drawLegend(figure, items, colors, left = 12) {
  const {places, height} = legendLayout(items, figure.width, left);
  for (const {x, y, item, text} of places) {
    const group = figure.svg.append('g').attr('transform', `translate(${x},${y})`)
      .attr('opacity', item.isHidden ? 0.4 : 1);
    if (item.box) {
      group.append('rect').attr('y', -9).attr('width', 11).attr('height', 11).attr('rx', 2)
        .attr('fill', item.color);
    } else {
      group.append('line').attr('x2', 22).attr('y1', -4).attr('y2', -4)
        .attr('stroke', item.color).attr('stroke-width', 2.4).attr('stroke-dasharray', item.dash);
    }
    if (item.marker) {
      group.append('path').attr('d', symbolPath(item.marker, 46)).attr('fill', item.color)
        .attr('transform', 'translate(11,-4)');
    }
    group.append('text').attr('class', 'legend').attr('x', item.box ? 16 : 27)
      .attr('fill', colors.text).text(text);
    if (item.toggle) {
      group.style('cursor', 'pointer').on('click', item.toggle).append('title')
        .text(`${item.text}: draw, or not`);
    }
  }
  return height;
}
