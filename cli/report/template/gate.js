// The verdict of `varve gate`: what passed, what did not and why, case by case.

const states = {
  passed: ['✓', 'passed'],
  failed: ['✕', 'failed'],
  undecided: ['?', 'undecided'],
  skipped: ['–', 'skipped'],
  not_run: ['…', 'not run'],
};

const stateText = (status) => (states[status] ?? ['', status ?? '']).join('\u00a0');
const stateBadge = (status) => element('span', {class: `state ${status}`}, stateText(status));
const ofStatus = (rows, status) => rows.filter((row) => row.status === status).length;

// "12 passed, 1 failed, 1 undecided"
function tally(rows) {
  const words = Object.keys(states).map((status) => [ofStatus(rows, status), states[status][1]]);
  return words.filter(([number]) => number > 0).map(([number, word]) => `${number} ${word}`).join(', ');
}

function verdictBanner() {
  const cases = report.cases ?? [];
  const passed = report.overall_pass === true;
  const word = report.interrupted ? '… Interrupted' : passed ? '✓ Passed' : '✕ Failed';
  const failures = cases.filter((row) => row.status === 'failed');
  const text = [element('div', {}, `${several(cases.length, 'case')}: ${tally(cases)}.`)];
  if (failures.length > 0) {
    text.push(element(
        'ul', {},
        failures.map(
            (row) => element(
                'li', {},
                element('b', {class: 'small', style: 'font-family:inherit;font-size:1em'}, row.name),
                `: ${row.reason || 'a gate failed'}`))));
  }
  if (cases.some((row) => row.status === 'undecided')) {
    text.push(paragraph(
        'Undecided: the difference is within the noise of this machine. It alone does not fail the run.',
        'quiet small'));
  }
  return element(
      'div',
      {class: `verdict ${
           report.interrupted ? 'not_run' :
               passed         ? 'passed' :
                                'failed'}`,
       role: 'status'},
      element('b', {}, word), element('div', {}, text));
}

const gateColumns = [
  {name: 'gate', kind: 'text', cell: (row) => element('code', {}, row.gate)},
  {name: 'bucket', kind: 'text', cell: (row) => row.bucket ?? 'all'},
  {name: 'measured', cell: (row) => withUnit(row.value, row.unit)},
  {
    name: 'threshold',
    cell: (row) =>
        `${{'>=': '≥', '<=': '≤', '==': '='}[row.op] ?? row.op ?? ''} ${withUnit(row.limit, row.unit)}`
  },
  {name: 'noise', cell: (row) => (isNumber(row.noise) ? `± ${percent(row.noise)}` : '–')},
  {name: 'verdict', kind: 'text', cell: (row) => stateBadge(row.status)},
  {name: 'reason', kind: 'long', cell: (row) => row.reason || ''},
];

function withUnit(value, unit) {
  if (unit === '%' && isNumber(value)) return `${plain(value)} %`;
  if (unit === 'part' && isNumber(value)) return `${plain(100 * value)} %`;
  if (unit === 'x' && isNumber(value)) return `${plain(value)}×`;
  if (unit === 'us' && isNumber(value)) return `${plain(value)} µs`;
  return unit && isNumber(value) ? `${plain(value)} ${unit}` : plain(value);
}

const bucketColumns = [
  {name: 'bucket', kind: 'text', cell: (row) => row.bucket},
  {name: 'prompts', cell: (row) => row.prompts},
  {name: 'tokens at end', cell: (row) => row.end_tokens},
  {name: 'cache', cell: (row) => humanBytes(row.cache_bytes)},
  {name: 'cache ratio', cell: (row) => times(row.cache_ratio)},
  {name: 'lossy', cell: (row) => times(row.lossy_ratio)},
  {name: 'tokens kept', cell: (row) => percent(row.keep_ratio)},
  {name: 'lossless', cell: (row) => times(row.lossless_ratio)},
  {name: '… layers 0–1', cell: (row) => times(row.lossless_front_ratio)},
  {name: '… the rest', cell: (row) => times(row.lossless_rest_ratio)},
  {name: 'tokens/s', cell: (row) => figure(row.tokens_per_s, 1)},
  {name: 'speed', cell: (row) => times(row.speed_ratio)},
  {name: 'note', kind: 'long', cell: (row) => row.idle || ''},
];

function caseCard(row) {
  const gates = row.gates ?? [];
  const open = row.status === 'failed' || row.status === 'undecided';
  const who =
      element('span', {class: 'who'}, element('b', {}, row.name), ' ', row.plan ? planName(row.plan) : null);
  const why = row.reason ? element('span', {class: 'why small'}, row.reason) : null;
  const summary = element(
      'summary', {}, stateBadge(row.status), who,
      element(
          'span', {class: 'count small'},
          gates.length ? `${ofStatus(gates, 'passed')} of ${several(gates.length, 'gate')}` : 'no gates'),
      why);
  const card = element('details', {class: `case ${row.status}`, open: open ? '' : null}, summary);
  if (row.purpose) card.append(paragraph(row.purpose, 'quiet small'));
  // What needs a reader's eye comes first.
  const order = ['failed', 'undecided', 'not_run', 'passed', 'skipped'];
  const sorted = [...gates].sort((a, b) => order.indexOf(a.status) - order.indexOf(b.status));
  if (sorted.length) card.append(makeTable(gateColumns, sorted, `Gates of ${row.name}`, true));
  if (row.buckets?.length) {
    card.append(element(
        'details', {}, element('summary', {}, 'Figures per bucket'),
        makeTable(bucketColumns, row.buckets, `Buckets of ${row.name}`)));
  }
  return card;
}

function addGate() {
  if (report.kind !== 'gate' || !report.cases?.length) return;
  addSection(
      'gates', 'The gates', 'Gates',
      paragraph(
          'Each case is a plan, prompts and thresholds. Open one for what was asked and what was measured; cases that did not pass are open already.',
          'quiet'),
      element('div', {'data-figure': 'gates'}, report.cases.map(caseCard)));
}

const spreadColumns = [
  {name: 'case', kind: 'text', cell: (row) => row.case},
  {name: 'bucket', kind: 'text', cell: (row) => row.bucket},
  {name: 'figure', kind: 'text', cell: (row) => element('code', {}, row.figure)},
  {name: 'runs', cell: (row) => row.runs},
  {name: 'least', cell: (row) => row.min},
  {name: 'median', cell: (row) => row.median},
  {name: 'most', cell: (row) => row.max},
];

function addSpread() {
  if (!report.spread?.length) return;
  addSection(
      'spread', 'How stable it is', 'Stability',
      paragraph('The same measurements, repeated: least, median and most over the runs.', 'quiet'),
      element('div', {class: 'card'}, makeTable(spreadColumns, report.spread, 'Spread over runs')));
}
