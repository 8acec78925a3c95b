// SPDX-License-Identifier: Apache-2.0
// The report's conclusion, in sentences at its start.

// Names stand between these, so that they can be set apart from the sentence.
const kOpen = '\u0001', kClose = '\u0002';
const marked = (name) => kOpen + name + kClose;

const kCapacityShare = 0.99;  // of the requests within the SLO

// For each setting that was run at several loads, the highest load up to which this share of the
// requests is within the SLO; null where not even the lowest load is.
function capacities(runs) {
  const withSlo = runs.filter((run) => run.result.slo_attainment != null);
  const groups = collectGroups(withSlo, kLoadKeys, loadOf);
  nameGroups(groups);
  return groups.map((group) => {
    const points = [...group.points].sort((a, b) => a.x - b.x);
    const misses = points.findIndex(({run}) => !(run.result.slo_attainment >= kCapacityShare));
    const last = points[misses < 0 ? points.length - 1 : misses - 1];
    return {name: group.name, run: last ? last.run : null, load: last ? last.x : 0,
      isOpen: misses < 0, first: points[0].x};
  });
}

function named(names) {
  const texts = names.map(marked);
  if (texts.length > 3) return `${texts.slice(0, 2).join(', ')} and ${texts.length - 2} others`;
  const last = texts.pop();
  return texts.length > 0 ? `${texts.join(', ')} and ${last}` : last;
}
const loadPhrase = (run) => (isOpenLoop(run)
  ? `${+run.result.request_rate.toPrecision(5)} requests/s`
  : `${run.result.max_concurrency} concurrent requests`);

// Which setting carries most load within the SLO; of equals the steadiest is named first.
function capacityText(all) {
  const known = all.filter(({run}) => run);
  if (all.length === 0) return '';
  const share = `${100 * kCapacityShare} % of the requests`;
  if (known.length === 0) {
    return `No setting keeps ${share} within the SLO, not even at the lowest load.`;
  }
  const most = d3.max(known, ({load}) => load);
  const best = known.filter(({load}) => load === most);
  const key = steadyKey(best.map(({run}) => run));
  best.sort((a, b) => a.run.result[key] - b.run.result[key]);
  const [{run}] = best;
  const verb = best.length > 1 ? 'keep' : 'keeps';
  let text = `${named(best.map(({name}) => name))} ${verb} ${share} ` +
    `within the SLO up to ${loadPhrase(run)}` +
    (best.some(({isOpen}) => isOpen) ? ', the highest load that was run'
      : best.length === all.length ? '' : ', more than any other setting') + '.';
  if (best.length > 1) {
    text += ` ${marked(best[0].name)} is the steadiest of them there: ${wordsOf(key)} ` +
      `${formatMs(run.result[key])}.`;
  }
  if (isShortRun(run)) {
    text += ` That run is short: ${formatNumber(100 * drainShare(run))} % of it lies after the ` +
      'last arrival, so a longer one may miss the SLO.';
  }
  const never = all.filter((one) => !one.run);
  if (never.length > 0) {
    text += ` ${named(never.map(({name}) => name))} ${never.length > 1 ? 'do' : 'does'} not even ` +
      'at the lowest load.';
  }
  return text;
}

// Where something went wrong: the longest gap, and the fewest requests within the SLO.
function worstText(runs) {
  const gap = mostStalled(runs);
  const parts = [];
  if (gap && gap.result.max_itl_ms > 0) {
    parts.push(`The longest gap between two tokens is ${formatMs(gap.result.max_itl_ms)}, in ` +
      `${marked(gap.name)}.`);
  }
  const least = d3.min(runs, (run) => run.result.slo_attainment);
  const worst = runs.filter((run) => run.result.slo_attainment === least);
  if (Number.isFinite(least) && least < 1) {
    parts.push(`The fewest requests within the SLO are ${formatNumber(100 * least, 1)} %, in ` +
      `${worst.length > 2 ? plural(worst.length, 'run') : named(worst.map(({name}) => name))}.`);
  }
  return parts.join(' ');
}

// Schedulers are compared, not the hardware or the way that passes are made: a sentence for each
// engine. Of many engines it is one for all.
function comparisonText(runs) {
  if (runs.some((run) => !(run.result.p99_itl_ms > 0))) return '';
  const engines = new Map();
  for (const run of runs) {
    // Without defaults that follow from what is compared.
    const reasons = run.result.config_reasons || {};
    const key = JSON.stringify(Object.entries(run.flat).filter(([name]) => !(name in reasons) &&
      /^(model|hardware|engine\..*|cost_model\..*)$/.test(name)));
    engines.set(key, [...(engines.get(key) || []), run]);
  }
  const compared = engines.size > 3 ? [runs] : [...engines.values()];
  return compared.map(findingText).filter(Boolean).join(' ');
}

function findingText(runs) {
  const key = steadyKey(runs);
  const worst = runs[d3.maxIndex(runs, (run) => run.result[key])];
  const hasSlo = runs.every((run) => Number.isFinite(run.result.request_goodput));
  const best = bestRun(runs, key);
  const factor = worst.result[key] / best.result[key];
  if (!(factor >= 1.2)) return '';
  const change = 100 * (best.result.output_throughput / worst.result.output_throughput - 1);
  const changeText = Math.abs(change) < 0.05 ? 'the same throughput'
    : `${formatNumber(Math.abs(change), 1)} % ${change > 0 ? 'more' : 'less'} throughput`;
  let text = `${marked(best.name)} has a ${wordsOf(key)} of ${formatMs(best.result[key])}, ` +
    `${formatNumber(factor, 1)} times less than ${marked(worst.name)} ` +
    `(${formatMs(worst.result[key])}), at ${changeText} and a p99 TTFT of ` +
    `${formatMs(best.result.p99_ttft_ms)} against ${formatMs(worst.result.p99_ttft_ms)}.`;
  if (key === 'max_itl_ms') {
    const hidden = runs.filter(hidesStalls).map(({name}) => name);
    text += ` In ${named(hidden)} fewer than 1 % of the gaps hold most of the stalled time: the ` +
      'p99 ITL does not see them.';
  } else if (best.result.max_itl_ms > 1.05 * worst.result.max_itl_ms) {
    text += ` But its longest gap is longer: ${formatMs(best.result.max_itl_ms)} against ` +
      `${formatMs(worst.result.max_itl_ms)}.`;
  }
  if (hasSlo) {
    text += ` ${formatNumber(100 * best.result.slo_attainment, 1)} % of its requests meet the ` +
      `SLO, ${formatNumber(100 * worst.result.slo_attainment, 1)} % of the other's.`;
  }
  return text;
}

// The set of comparable runs that says most: at the load that the best setting carries, else the
// largest.
function tellingSet(runs, all) {
  const sets = comparedSets(runs);
  const most = d3.max(all, ({load}) => load);
  const best = all.find(({run, load}) => run && load === most);
  return sets.find((set) => best && set.includes(best.run)) ||
    sets.sort((a, b) => b.length - a.length)[0] || [];
}

function findings(runs) {
  if (runs.length < 2) return [];
  if (incomparableBecause(runs) === '') {
    return [comparisonText(runs), runs.length > kDrawnAtOnce ? worstText(runs) : '']
      .filter(Boolean);
  }
  const all = capacities(runs);
  const set = tellingSet(runs, all);
  const compared = set.length > 1 ? comparisonText(set) : '';
  const isOneLoad = compared && loadOf(set[0]) && set.length < runs.length;
  return [capacityText(all), compared && (isOneLoad ? `At ${loadPhrase(set[0])}: ` : '') + compared,
    worstText(runs)].filter(Boolean);
}

function writeConclusion(runs) {
  const sentences = findings(runs);
  document.getElementById('conclusion').hidden = sentences.length === 0;
  document.getElementById('findings').replaceChildren(
    ...sentences.map((sentence) => element('li', {}, ...sentence.split(kOpen).flatMap((part, i) => {
      if (i === 0) return [part];
      const [name, rest] = part.split(kClose);
      return [element('b', {}, ...breakable(name)), rest];
    }))));
}
