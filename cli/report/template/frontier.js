// Quality against bytes: one numbered point per plan; those that no other plan beats are joined.

// Rows with a place in the figure, numbered as everywhere on the page.
function frontierRows() {
  const rows = report.frontier ?? report.plans ?? [];
  return rows
      .map(
          (row, index) => ({...row, number: index + 1, label: nameOf(row), baseline: isBaseline(row, index)}))
      .filter((row) => isNumber(row.bytes_per_token));
}

// On the frontier: no other plan is smaller and closer to f16 at once.
function markFrontier(rows) {
  for (const row of rows) {
    row.best = isNumber(row.kl_mean) &&
        !rows.some(
            (other) => other !== row && isNumber(other.kl_mean) &&
                other.bytes_per_token <= row.bytes_per_token && other.kl_mean <= row.kl_mean &&
                (other.bytes_per_token < row.bytes_per_token || other.kl_mean < row.kl_mean));
  }
}

function pointText(row) {
  const quality = row.baseline ?
      'the reference' :
      isNumber(row.kl_mean) ?
      `KL ${divergence(row.kl_mean)}${isNumber(row.top1) ? `, ${percent(row.top1)} same best token` : ''}` :
                                                           'quality not measured';
  const name = row.case && row.plan ? `${row.case} (${row.plan})` : row.label;
  return `${row.number}: ${name}\n${humanBytes(row.bytes_per_token)} per token, ${
      times(row.ratio)} smaller than f16\n${quality}${row.best && !row.baseline ? '\non the frontier' : ''}`;
}

// Places labels where nothing lies yet: right, left, above, below. What finds no place has its number.
function placeLabels(points, lines, width, height) {
  const taken =
      points
          .map(
              (point) => ({left: point.x - 13, right: point.x + 13, top: point.y - 13, bottom: point.y + 13}))
          .concat(lines);
  const free = (box) => box.left >= 0 && box.right <= width && box.top >= 0 && box.bottom <= height &&
      !taken.some(
          (other) => box.left < other.right && other.left < box.right && box.top < other.bottom &&
              other.top < box.bottom);
  const labels = [];
  for (const point of points) {
    const text = point.row.label.length > 34 ? `${point.row.label.slice(0, 33)}…` : point.row.label;
    const long = text.length * 7;
    const places = [
      [point.x + 16, point.y + 4, 'start'], [point.x - 16, point.y + 4, 'end'],
      [point.x, point.y - 18, 'middle'], [point.x, point.y + 25, 'middle'],
      [point.x + 12, point.y - 16, 'start'], [point.x - 12, point.y - 16, 'end'],
      [point.x + 12, point.y + 24, 'start'], [point.x - 12, point.y + 24, 'end']
    ];
    for (const [x, y, anchor] of places) {
      const left = anchor === 'start' ? x : anchor === 'end' ? x - long : x - long / 2;
      const box = {left: left - 2, right: left + long + 2, top: y - 12, bottom: y + 4};
      if (!free(box)) continue;
      taken.push(box);
      labels.push(svg('text', {x, y, 'text-anchor': anchor, class: 'plan halo'}, text));
      break;
    }
  }
  return labels;
}

// Powers of two around some sizes: {ticks, at(bytes) in 0…1}.
function sizeAxis(values) {
  const low = Math.log2(Math.min(...values)) - 0.25;
  const high = Math.log2(Math.max(...values)) + 0.25;
  const factors = high - low < 1.5 ? [1, 1.25, 1.5, 1.75] : [1];
  const list = [];
  for (let power = Math.floor(low); power <= high; ++power)
    list.push(...factors.map((factor) => factor * 2 ** power));
  return {
    ticks: list.filter((bytes) => Math.log2(bytes) >= low && Math.log2(bytes) <= high),
    at: (bytes) => (Math.log2(bytes) - low) / (high - low)
  };
}

function drawFrontier(rows, width) {
  const wide = width > 620;
  const height = wide ? 460 : 420;
  const radius = wide ? 10 : 9;
  const [left, right, top, bottom] = [52, 18, 16, 64];
  const axis = divergenceAxis(rows.filter((row) => !row.baseline).map((row) => row.kl_mean));
  const sizes = sizeAxis(rows.map((row) => row.bytes_per_token));
  const inner = height - top - bottom - 34;  // below the decades lies "0", for what has no divergence
  const x = (bytes) => left + (width - left - right) * sizes.at(bytes);
  const y = (kl) => (kl > 0 ? top + inner * (1 - axis.at(kl)) : height - bottom - 6);
  const picture = canvas(width, height);
  for (let decade = axis.low; decade <= axis.high; ++decade) {
    const at = top + inner * (1 - (decade - axis.low) / (axis.high - axis.low));
    picture.append(
        svg('line', {class: 'grid', x1: left, x2: width - right, y1: at, y2: at}),
        svg('text', {class: 'tick', x: left - 8, y: at + 4, 'text-anchor': 'end'}, decadeText(decade)));
  }
  picture.append(
      svg('line',
          {class: 'axis', x1: left, x2: width - right, y1: height - bottom + 12, y2: height - bottom + 12}),
      svg('text', {class: 'tick', x: left - 8, y: height - bottom - 2, 'text-anchor': 'end'}, '0'));
  for (const at of sizes.ticks) {
    picture.append(
        svg('line', {class: 'grid', x1: x(at), x2: x(at), y1: top, y2: height - bottom + 17}),
        svg('text', {class: 'tick', x: x(at), y: height - bottom + 32, 'text-anchor': 'middle'},
            shortBytes(at)));
  }
  picture.append(svg(
      'text', {class: 'tick', x: left + (width - left - right) / 2, y: height - 10, 'text-anchor': 'middle'},
      wide ? 'bytes of cache per token, logarithmic: left is smaller' : 'bytes per token, logarithmic'));
  const points = rows.filter((row) => row.baseline || isNumber(row.kl_mean))
                     .map((row) => ({row, x: x(row.bytes_per_token), y: y(row.baseline ? 0 : row.kl_mean)}));
  const best = points.filter((point) => point.row.best).sort((a, b) => a.x - b.x);
  if (best.length > 1)
    picture.append(svg('path', {
      class: 'frontier',
      d: best.map((point, i) => (i === 0 ? `M${point.x} ${point.y}` : `H${point.x}V${point.y}`)).join('')
    }));
  // The steps of the frontier, for labels to keep off.
  const lines = best.slice(1).flatMap(
      (point, i) =>
          [{left: best[i].x, right: point.x, top: best[i].y - 1, bottom: best[i].y + 1},
           {left: point.x - 1, right: point.x + 1, top: best[i].y, bottom: point.y}]);
  if (wide) picture.append(...placeLabels(points, lines, width, height - bottom + 10));
  // What is on the frontier lies on top.
  for (const {row, x: cx, y: cy} of [...points].sort((a, b) => Boolean(a.row.best) - Boolean(b.row.best))) {
    const shape = row.baseline ?
        svg('path',
            {class: 'base', d: `M${cx} ${cy - 12}L${cx + 12} ${cy}L${cx} ${cy + 12}L${cx - 12} ${cy}Z`}) :
        svg('circle', {cx, cy, r: radius, class: row.best ? 'dot' : 'hollow'});
    picture.append(spot(
        pointText(row), svg('circle', {class: 'ring', cx, cy, r: radius + 4}), shape,
        svg('text', {class: `number ${row.best || row.baseline ? 'inside' : ''}`, x: cx, y: cy + 4},
            row.number)));
  }
  return picture;
}

function addFrontier() {
  const rows = frontierRows();
  if (!rows.some((row) => !row.baseline && isNumber(row.kl_mean))) return;
  markFrontier(rows);
  const columns = [
    {name: '', kind: 'text', cell: (row) => row.number},
    {name: 'plan', kind: 'plan', cell: (row) => planName(row.plan ?? row.label)},
    {name: 'bytes/token', cell: (row) => count(Math.round(row.bytes_per_token))},
    {name: '× smaller', cell: (row) => figure(row.ratio, 2)},
    {name: 'KL mean', cell: (row) => (row.baseline ? '–' : divergence(row.kl_mean))},
    {name: 'same best', cell: (row) => (row.baseline ? '–' : percent(row.top1))},
    {name: 'frontier', kind: 'text', cell: (row) => (row.best ? 'yes' : '')},
  ];
  const key = legend([
    [
      keySample(svg('circle', {cx: 11, cy: 7, r: 6, class: 'dot'})),
      'on the frontier: no plan here is both smaller and closer'
    ],
    [keySample(svg('circle', {cx: 11, cy: 7, r: 5.5, class: 'hollow'})), 'another plan beats it'],
    [keySample(svg('path', {class: 'base', d: 'M11 0L18 7L11 14L4 7Z'})), 'f16, the reference'],
  ]);
  const list = element(
      'ol', {class: 'points'},
      rows.map(
          (row) => element(
              'li', {}, element('span', {class: 'num'}, row.number),
              element(
                  'div', {}, planName(row.label),
                  element(
                      'span', {class: 'what'},
                      ` ${times(row.ratio)}${
                          row.baseline ? ', the reference' : `, KL ${divergence(row.kl_mean)}`}`)))));
  const body = element(
      'div', {},
      holder(
          'Mean KL divergence against bytes per token, a point per plan',
          (width) => drawFrontier(rows, width)),
      list);
  addSection(
      'frontier', 'Quality against bytes', 'Quality and bytes', makeFigure({
        id: 'frontier',
        title: 'What a byte buys',
        note:
            'Mean KL divergence from the predictions with an f16 cache, in nats, on a logarithmic axis: lower is closer. Best is the corner at the lower left.',
        key,
        body,
        table: foldedTable(columns, rows, 'Quality against bytes')
      }));
}
