// SPDX-License-Identifier: Apache-2.0
// The summary table: sorted, filtered, and the place where runs are selected to be drawn. Also the
// settings in which runs differ, and the cue of a table that is wider than its frame.

// {"scheduler.policy": "chunked", ...}; lists as JSON.
function flattened(config, prefix = '', into = {}) {
  for (const [key, value] of Object.entries(config)) {
    const path = prefix ? `${prefix}.${key}` : key;
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) {
      flattened(value, path, into);
    } else {
      into[path] = JSON.stringify(value);
    }
  }
  return into;
}

// Gives each run `flat`, all its settings, and `settings`, those in which not all runs agree, but
// for defaults that follow from other settings in every run.
function readSettings(runs) {
  for (const run of runs) run.flat = flattened(run.config);
  const keys = new Set(runs.flatMap((run) => Object.keys(run.flat)));
  const follows = (key) => runs.every((run) => key in (run.result.config_reasons || {}));
  const differing = [...keys].filter((key) => !key.startsWith('results.') && !follows(key) &&
    runs.some((run) => run.flat[key] !== runs[0].flat[key]));
  for (const run of runs) {
    run.settings = Object.fromEntries(differing.filter((key) => run.flat[key] !== undefined)
      .map((key) => [key, run.flat[key]]));
  }
}

const plainText = (json) => String(json).replace(/^"|"$/g, '');
const byNumber = (a, b) => a.localeCompare(b, 'en', {numeric: true});

// Swept settings: {name, values, of(run)} for each setting that has two values or more, each in
// several runs. The variant counts as one; of settings that tell the same runs apart, the first.
function sweptKeys(runs) {
  const texts = [['variant', (run) => run.result.label || undefined]];
  for (const key of new Set(runs.flatMap((run) => Object.keys(run.settings)))) {
    texts.push([key, (run) => (run.settings[key] === undefined ? undefined
      : plainText(run.settings[key]))]);
  }
  const seen = new Set();
  const swept = [];
  for (const [key, of] of texts) {
    const values = [...new Set(runs.map(of))];
    const split = runs.map((run) => values.indexOf(of(run))).join();
    const known = values.filter((value) => value !== undefined).sort(byNumber);
    if (known.length < 2 || values.length === runs.length || seen.has(split)) continue;
    seen.add(split);
    swept.push({key, values: known, of});
  }
  const last = ({key}) => key.split('.').pop();
  for (const one of swept) {
    one.name = swept.every((other) => other === one || last(other) !== last(one)) ? last(one)
      : one.key;
  }
  return swept;
}

// ---- Filter ----

const kRelations = {'<=': (a, b) => a <= b, '>=': (a, b) => a >= b, '<': (a, b) => a < b,
  '>': (a, b) => a > b, '=': (a, b) => a === b, '!=': (a, b) => a !== b};

// The figure or setting of that name; undefined if the run has none.
function valueNamed(run, name) {
  const figure = run.result[name];
  if (typeof figure === 'number' || typeof figure === 'string') return String(figure);
  const key = Object.keys(run.flat).find((path) => path === name || path.endsWith(`.${name}`));
  return key === undefined ? undefined : plainText(run.flat[key]);
}

// A word of the filter: a part of the name, or a comparison such as rate=8 or p99_itl_ms<50.
function wordTest(word, runs) {
  const parts = /^([\w.]+)(<=|>=|!=|=|<|>)(.+)$/.exec(word);
  if (!parts || runs.every((run) => valueNamed(run, parts[1]) === undefined)) {
    return (run) => run.name.toLowerCase().includes(word.toLowerCase());
  }
  const [, name, relation, limit] = parts;
  return (run) => {
    const value = valueNamed(run, name);
    if (value === undefined) return false;
    const areNumbers = Number.isFinite(Number(value)) && Number.isFinite(Number(limit));
    return areNumbers ? kRelations[relation](Number(value), Number(limit))
      : kRelations[relation](value.toLowerCase(), limit.toLowerCase());
  };
}

// ---- The table ----

const kDrawnAtOnce = 8;  // by the button

class SummaryTable {
  // `changed` is called when other runs are selected or listed.
  constructor(runs, changed) {
    Object.assign(this, {runs, changed, key: null, isDown: false, words: '', chosen: new Map()});
    this.body = document.querySelector('.summary tbody');
    this.rows = runs.map(({index}) =>
      this.body.querySelector(`th[data-run="${index}"]`).parentNode);
    for (const run of runs) this.addButton(run);
    if (runs.length > 1) this.addSorting();
    if (runs.length > kDrawnAtOnce) this.addControls();
    this.update();
  }

  cell(run) { return this.rows[run.index].querySelector('th'); }

  // A button that selects the run: its swatch and its name.
  addButton(run) {
    const button = element('button', {type: 'button', class: 'toggle',
      title: 'draw in the figures, or not', onclick: () => this.toggle(run)});
    button.append(element('span', {class: 'swatch'}),
      element('span', {class: 'name'}, ...breakable(run.name)));
    this.cell(run).replaceChildren(button);
  }

  toggle(run) {
    const isOnly = this.runs.every((other) => other === run || !other.isSelected);
    if (run.isSelected && isOnly) return;  // one run at least is drawn
    if (!setSelected(this.runs, run, !run.isSelected)) {
      this.say(`${kMostStyles} runs are drawn at most: unselect one first`);
      return;
    }
    this.update();
    this.changed(run.isSelected ? run : null);
  }

  addSorting() {
    const titles = document.querySelectorAll('.summary thead tr:last-child th');
    const keys = ['', ...[...this.rows[0].querySelectorAll('td')].map((cell) => cell.dataset.key)];
    titles.forEach((title, i) => {
      const button = element('button', {type: 'button', class: 'sort',
        onclick: () => this.sort(keys[i])}, title.textContent);
      title.dataset.sort = keys[i];
      title.replaceChildren(button);
    });
  }

  // The best first; a second time the other way round.
  sort(key) {
    this.isDown = this.key === key ? !this.isDown : betterOf(key) > 0;
    this.key = key;
    this.order();
  }

  sorted() {
    if (this.key === null) return this.runs;
    const sign = this.isDown ? -1 : 1;
    const figure = (run) => run.result[this.key];
    return [...this.runs].sort((a, b) => {
      if (this.key === '') return sign * byNumber(a.name, b.name);
      const isA = Number.isFinite(figure(a)), isB = Number.isFinite(figure(b));
      return isA && isB ? sign * (figure(a) - figure(b)) : isB - isA;
    });
  }

  order() {
    this.body.append(...this.sorted().map((run) => this.rows[run.index]));
    for (const title of document.querySelectorAll('.summary th[data-sort]')) {
      if (title.dataset.sort !== this.key) title.removeAttribute('aria-sort');
      else title.setAttribute('aria-sort', this.isDown ? 'descending' : 'ascending');
    }
  }

  addControls() {
    const controls = document.getElementById('table-controls');
    const input = element('input', {type: 'search', size: 20,
      title: 'parts of names, and conditions on settings and figures of result.json',
      oninput: () => { this.words = input.value; this.filter(); }});
    controls.append(element('label', {}, 'filter (name rate=8 p99_itl_ms<50) ', input));
    const swept = sweptKeys(this.runs).slice(0, 4);
    for (const {name, values, of} of swept) {
      const select = element('select', {onchange: () => {
        this.chosen.set(of, select.value);
        this.filter();
      }}, element('option', {value: ''}, 'all'));
      for (const value of values) select.append(element('option', {value}, value));
      controls.append(element('label', {}, `${name} `, select));
    }
    controls.append(element('button', {type: 'button', onclick: () => this.drawFirst()},
      `draw the first ${kDrawnAtOnce} rows`));
    this.status = element('span', {class: 'status', role: 'status'});
    controls.append(this.status);
  }

  filter() {
    const tests = (this.words.match(/\S+/g) || []).map((word) => wordTest(word, this.runs));
    for (const [of, value] of this.chosen) {
      if (value !== '') tests.push((run) => of(run) === value);
    }
    for (const run of this.runs) run.isListed = tests.every((test) => test(run));
    this.update();
    this.changed(null);
  }

  drawFirst() {
    const first = this.sorted().filter((run) => run.isListed).slice(0, kDrawnAtOnce);
    if (first.length === 0) return;
    selectRuns(this.runs, first);
    this.update();
    this.changed(first[0]);
  }

  say(text) { if (this.status) this.status.textContent = text; }

  // Swatches as in the figures, and which rows there are.
  update() {
    for (const run of this.runs) {
      const row = this.rows[run.index];
      row.hidden = !run.isListed;
      const button = row.querySelector('.toggle');
      button.setAttribute('aria-pressed', String(run.isSelected));
      const svg = d3.create('svg').attr('width', 24).attr('height', 12).attr('aria-hidden', 'true');
      if (run.isSelected) {
        svg.append('line').attr('x2', 24).attr('y1', 6).attr('y2', 6).attr('stroke', run.color)
          .attr('stroke-width', 3).attr('stroke-dasharray', run.dash);
        if (this.runs.length > kDashes.length) {
          svg.append('path').attr('d', symbolPath(run.marker, 60)).attr('fill', run.color)
            .attr('transform', 'translate(12,6)');
        }
      } else {
        svg.append('circle').attr('cx', 12).attr('cy', 6).attr('r', 3.5).attr('fill', 'none')
          .attr('stroke', theme().axis);
      }
      button.firstChild.replaceChildren(svg.node());
    }
    markBest(listed(this.runs));
    const numListed = listed(this.runs).length;
    const numDrawn = this.runs.filter((run) => !run.isHidden).length;
    this.say(`${numListed === this.runs.length ? plural(numListed, 'run')
      : `${numListed} of ${plural(this.runs.length, 'run')}`}, ${numDrawn} drawn in colour`);
    updateCues();
  }
}

// Whether each run has the best of a figure, to a hundredth.
function bestOf(runs, key) {
  const values = runs.map((run) => run.result[key]);
  const best = betterOf(key) > 0 ? d3.max(values) : d3.min(values);
  return values.map((value) => isSameFigure(value, best));
}

// The best of each column, where the listed runs compare.
function markBest(runs) {
  for (const cell of document.querySelectorAll('.summary td.best')) cell.classList.remove('best');
  const reason = runs.length > 1 ? incomparableBecause(runs) : '';
  document.getElementById('best-note').textContent = reason
    ? `No value is marked as the best: ${reason}.` : '';
  if (runs.length < 2 || reason) return;
  const keys = [...document.querySelectorAll('.summary tbody tr:first-child td')]
    .map((cell) => cell.dataset.key).filter(betterOf);
  for (const key of keys) {
    const cells = runs.map((run) => document
      .querySelector(`.summary th[data-run="${run.index}"]`).parentNode
      .querySelector(`td[data-key="${key}"]`));
    const values = runs.map((run) => run.result[key]);
    if (values.some((value) => !Number.isFinite(value))) continue;
    const leads = bestOf(runs, key);
    if (leads.every(Boolean)) continue;
    // The lowest p99 is no best where the longest gap is longer than in others.
    const isBest = key === 'p99_itl_ms'
      ? bestOf(runs, 'max_itl_ms').map((isShort, i) => isShort && leads[i]) : leads;
    cells.forEach((cell, i) => cell.classList.toggle('best', isBest[i]));
  }
}

// ---- Tables wider than their frame ----

// Says how many columns are out of sight, above each frame that can be moved sideways.
function updateCues() {
  for (const frame of document.querySelectorAll('.scroll')) {
    let cue = frame.previousElementSibling;
    if (!cue || !cue.classList.contains('cue')) {
      cue = element('p', {class: 'cue', 'aria-hidden': 'true'});
      frame.before(cue);
      frame.addEventListener('scroll', updateCues, {passive: true});
    }
    const right = frame.getBoundingClientRect().left + frame.clientWidth;
    const row = frame.querySelector('thead tr:last-child');
    const numBehind = row ? [...row.children].filter((title) =>
      title.getBoundingClientRect().right > right + 1).length : 0;
    const isWide = frame.scrollWidth > frame.clientWidth + 1;
    cue.hidden = !isWide;
    cue.textContent = numBehind === 0 ? '← move the table back'
      : `${plural(numBehind, 'more column')}: move the table sideways →`;
    frame.classList.toggle('more', isWide && numBehind > 0);
  }
}
