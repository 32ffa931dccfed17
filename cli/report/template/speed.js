// Speed by depth, as a ratio to the baseline of the same run, beside what noise alone makes of it.

const bucketShapes = ['circle', 'square', 'triangle', 'diamond'];

// Around 0,0.
function bucketMark(shape) {
  const paths = {
    square: 'M-5.5 -5.5H5.5V5.5H-5.5Z',
    triangle: 'M0 -7L6.5 5.5H-6.5Z',
    diamond: 'M0 -7.5L7.5 0L0 7.5L-7.5 0Z'
  };
  return shape === 'circle' ? svg('circle', {r: 6, class: 'dot'}) :
                              svg('path', {d: paths[shape], class: 'dot'});
}

// Buckets are depths in tokens, or a name: scripted turns.
const bucketWords = (bucket) => (/^\d+$/.test(bucket) ? `${count(Number(bucket))} tokens` : String(bucket));

function speedText(row) {
  const noise = isNumber(row.noise) ? `, noise ± ${percent(row.noise)}` : '';
  const spread =
      isNumber(row.low) && isNumber(row.high) ? `, quartiles ${times(row.low)} to ${times(row.high)}` : '';
  return `${times(row.speed_ratio)} of the baseline at ${bucketWords(row.bucket)}${
      isNumber(row.tokens_per_s) ? `, ${figure(row.tokens_per_s, 1)} tokens/s` : ''}${spread}${noise}`;
}

// Where a ratio is on the track; the figure stands at its end.
const speedPlace = (scale, ratio) =>
    across(0.02 + 0.72 * Math.min(1, Math.max(0, (ratio - scale.low) / (scale.high - scale.low))));

// Ratios from the slowest to the fastest, with 1 among them; not from 0, since it is small differences that
// matter.
function speedScale(rows) {
  const all = rows.flatMap(
      (row) => [row.speed_ratio, row.low ?? 1, row.high ?? 1, 1 - (row.noise ?? 0), 1 + (row.noise ?? 0)]);
  const low = Math.min(0.95, ...all);
  const high = Math.max(1.05, ...all);
  const room = 0.06 * (high - low);
  return {low: Math.max(0, low - room), high: high + room};
}

function speedTrack(row, shape, scale, bucketName) {
  const at = (ratio) => speedPlace(scale, ratio);
  const noise = isNumber(row.noise) ? row.noise : 0;
  const grid = ticks(scale.low, scale.high, 5)
                   .map((ratio) => svg('line', {class: 'grid', x1: at(ratio), x2: at(ratio), y1: 0, y2: 26}));
  return svg(
      'svg', {role: 'img', 'aria-label': `${bucketName ? `${bucketName}: ` : ''}${speedText(row)}`}, grid,
      svg('rect', {
        class: 'noise',
        x: at(1 - noise),
        width: `${(parseFloat(at(1 + noise)) - parseFloat(at(1 - noise))).toFixed(2)}%`,
        y: 0,
        height: 26
      }),
      svg('line', {class: 'dashed', x1: at(1), x2: at(1), y1: 0, y2: 26}),
      isNumber(row.low) && isNumber(row.high) ?
          svg('line',
              {class: 'track', style: 'opacity:.6', x1: at(row.low), x2: at(row.high), y1: 13, y2: 13}) :
          null,
      svg('svg', {x: at(row.speed_ratio), y: 13, width: 1, height: 1, style: 'width:1px;height:1px'},
          bucketMark(shape)),
      svg('text', {x: '100%', y: 18, 'text-anchor': 'end'},
          `${times(row.speed_ratio)}${bucketName ? ` · ${bucketName}` : ''}`));
}

function addSpeed() {
  const rows = (report.speed ?? []).filter((row) => isNumber(row.speed_ratio));
  if (rows.length === 0) return;
  const buckets = [...new Set(rows.map((row) => row.bucket))];
  const names = [...new Set(rows.map(nameOf))];
  const scale = speedScale(rows);
  const planOf = (name) => rows.find((row) => nameOf(row) === name).plan;
  const lines = names.map(
      (name) => element(
          'div', {class: 'row two'},
          element(
              'div', {class: 'name'}, planOf(name) && planOf(name) !== name ? element('div', {}, name) : null,
              planName(planOf(name) ?? name)),
          element(
              'div', {},
              rows.filter((row) => nameOf(row) === name)
                  .map(
                      (row) => speedTrack(
                          row, bucketShapes[buckets.indexOf(row.bucket) % 4], scale,
                          buckets.length > 1 ? row.bucket : '')))));
  const axis = element(
      'div', {class: 'row two axis', 'aria-hidden': 'true'}, element('span', {class: 'unseen'}),
      svg('svg', {},
          ticks(scale.low, scale.high, 5)
              .map(
                  (at) =>
                      svg('text', {class: 'tick', x: speedPlace(scale, at), y: 13, 'text-anchor': 'middle'},
                          `${at}×`))));
  const columns = [
    {name: 'plan', kind: 'plan', cell: (row) => planName(row.plan ?? nameOf(row))},
    ...(rows.some((row) => row.case) ? [{name: 'case', kind: 'text', cell: (row) => row.case}] : []),
    {name: 'depth', cell: (row) => row.bucket},
    {name: 'tokens/s', cell: (row) => figure(row.tokens_per_s, 1)},
    {name: 'ratio', cell: (row) => times(row.speed_ratio)},
    {name: 'quartiles', cell: (row) => (isNumber(row.low) ? `${times(row.low)} … ${times(row.high)}` : '–')},
    {name: 'noise', cell: (row) => (isNumber(row.noise) ? `± ${percent(row.noise)}` : '–')},
  ];
  const shapes = buckets.length > 1 ?
      buckets.map(
          (bucket, i) =>
              [svg('svg', {viewBox: '-11 -7 22 14', 'aria-hidden': 'true'}, bucketMark(bucketShapes[i % 4])),
               bucketWords(bucket)]) :
      [];
  const key = legend([
    ...shapes, [keySample(svg('path', {class: 'dashed', d: 'M11 0V14'})), 'the baseline'],
    [keySample(svg('rect', {class: 'noise', width: 22, height: 14})), 'noise: the baseline against itself']
  ]);
  const depth = buckets.length === 1 ? ` at a depth of ${bucketWords(buckets[0])}` : ' by depth';
  addSection(
      'speed', 'Speed', 'Speed', makeFigure({
        id: 'speed',
        title: `Decoding speed${depth}, relative to the baseline`,
        note: 'Right of the dashed line is faster. What lies within the grey band cannot be told from noise.',
        key,
        body: element('div', {class: 'rows'}, lines, axis),
        table: foldedTable(columns, rows, 'Speed relative to the baseline')
      }));
}
