// Every plan in a row of its own: memory as a bar, divergence as a dot, and all figures in a table.

const across = (share) => `${(100 * share).toFixed(2)}%`;

function memoryTrack(row, most) {
  const share = Math.max(0.006, 0.66 * row.bytes_per_token / most);
  return svg(
      'svg',
      {role: 'img', 'aria-label': `${humanBytes(row.bytes_per_token)} per token, ratio ${times(row.ratio)}`},
      svg('rect',
          {class: row.baseline ? 'base' : 'bar', x: 0, y: 5, width: across(share), height: 16, rx: 3}),
      svg('text', {x: across(share), dx: 8, y: 18},
          `${humanBytes(row.bytes_per_token)} · ${times(row.ratio)}`));
}

// Where a share of the axis is on the track; the figures stand behind the dot.
const dotPlace = (share) => across(0.03 + 0.44 * share);

function qualityTrack(row, axis) {
  const words = (text) =>
      svg('svg', {role: 'img', 'aria-label': text}, svg('text', {class: 'tick', x: 0, y: 18}, text));
  if (row.baseline) return words('the reference');
  if (!isNumber(row.kl_mean)) return words('not measured');
  const text = `${divergence(row.kl_mean)}${isNumber(row.top1) ? ` · ${percent(row.top1)} same best` : ''}`;
  const at = dotPlace(axis.at(row.kl_mean));
  const lines = [];
  for (let decade = axis.low; decade <= axis.high; ++decade) {
    const place = dotPlace((decade - axis.low) / (axis.high - axis.low));
    lines.push(svg('line', {class: 'grid', x1: place, x2: place, y1: 0, y2: 26}));
  }
  return svg(
      'svg', {role: 'img', 'aria-label': `KL ${text}`}, lines,
      svg('line', {class: 'track', x1: dotPlace(0), x2: at, y1: 13, y2: 13}),
      svg('circle', {class: 'dot', cx: at, cy: 13, r: 6.5}),
      svg('text', {class: 'halo', x: at, dx: 12, y: 18}, text));
}

function decadeRow(axis) {
  const apart = axis.high - axis.low > 5 ? 2 : 1;  // names have no room at every line then
  const texts = [];
  for (let decade = axis.low; decade <= axis.high; decade += apart) {
    const place = dotPlace((decade - axis.low) / (axis.high - axis.low));
    texts.push(svg('text', {class: 'tick', x: place, y: 13, 'text-anchor': 'middle'}, decadeText(decade)));
  }
  const empty = () => element('span', {class: 'unseen'});
  return element('div', {class: 'row axis', 'aria-hidden': 'true'}, empty(), empty(), svg('svg', {}, texts));
}

const planColumns = [
  {name: '', kind: 'text', cell: (row) => row.number},
  {name: 'plan', kind: 'plan', cell: (row) => planName(row.plan ?? row.label)},
  {name: 'cache', cell: (row) => humanBytes(row.cache_bytes)},
  {name: 'bytes/token', cell: (row) => count(Math.round(row.bytes_per_token))},
  {name: '× smaller', cell: (row) => figure(row.ratio, 2)},
  {name: 'KL mean', cell: (row) => (row.baseline ? '–' : divergence(row.kl_mean))},
  {name: 'KL max', cell: (row) => (row.baseline ? '–' : divergence(row.kl_max))},
  {name: 'same best', cell: (row) => (row.baseline ? '–' : percent(row.top1))},
  {name: 'differs at', cell: (row) => (isNumber(row.first_difference) ? row.first_difference + 1 : '–')},
  {name: 'tokens/s', cell: (row) => figure(row.tokens_per_s, 1)},
  {name: 'prompt tokens/s', cell: (row) => figure(row.prompt_tokens_per_s, 0)},
];

function addPlans() {
  const rows = frontierRows();
  if (rows.length === 0) return;
  const most = Math.max(...rows.map((row) => row.bytes_per_token));
  const axis = divergenceAxis(rows.filter((row) => !row.baseline).map((row) => row.kl_mean));
  const body = element(
      'div', {class: 'rows'},
      element(
          'div', {class: 'row head', 'aria-hidden': 'true'}, element('span', {}, 'plan'),
          element('span', {}, 'bytes of cache per token · f16 ÷ this'),
          element('span', {}, 'mean KL, logarithmic: left is better')),
      rows.map(
          (row) => element(
              'div', {class: 'row'},
              element(
                  'div', {class: 'name numbered'}, element('span', {class: 'num'}, row.number),
                  planName(row.label)),
              memoryTrack(row, most), qualityTrack(row, axis))),
      decadeRow(axis));
  const constants = report.constants ?
      ` Everything is counted but constants of the model. The ${report.constants}.` :
      ' Everything is counted.';
  const scored =
      report.scored_tokens ? ` KL is the mean over ${several(report.scored_tokens, 'token')}, in nats.` : '';
  const content = [makeFigure({
    id: 'plans',
    title: 'Memory and quality, plan by plan',
    note: `Bytes of cache per token; × is f16 ÷ this.${constants}${scored}`,
    body
  })];
  if (report.plans) {
    content.push(element(
        'div', {class: 'card', 'data-figure': 'figures'}, element('h3', {}, 'All figures'),
        makeTable(planColumns, rows, 'All figures of all plans'),
        paragraph(
            'KL, “same best” (the same most likely token) and speed are along the f16 text, all plans in turn at each token. One short run: varve eval and varve bench decode measure properly.',
            'note small')));
  }
  const fallbacks = (report.plans ?? []).filter((row) => row.fallbacks?.length);
  if (fallbacks.length) {
    content.push(element(
        'div', {class: 'card'}, element('h3', {}, 'Ran otherwise than asked'),
        element(
            'ul', {},
            fallbacks.flatMap(
                (row) => row.fallbacks.map(
                    (use) => element(
                        'li', {}, planName(row.plan),
                        `: ${
                            Object.entries(use)
                                .map(([name, value]) => `${name.replace(/_/g, ' ')} ${plain(value)}`)
                                .join(', ')}`))))));
  }
  addSection('plans', 'Plan by plan', 'Plans', ...content);
}
