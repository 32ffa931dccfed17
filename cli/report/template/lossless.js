// Lossless packing: raw ÷ packed bytes by layer, for keys and for values.

function drawLossless(rows, most, width) {
  const height = 210;
  const [left, right, top, bottom] = [40, 12, 12, 44];
  const layers = [...new Set(rows.map((row) => row.layer))].sort((a, b) => a - b);
  const x = (layer) => left + 14 +
      (width - left - right - 28) * (layers.length > 1 ? layers.indexOf(layer) / (layers.length - 1) : 0.5);
  const y = (ratio) => top + (height - top - bottom) * (1 - (Math.max(ratio, 1) - 1) / (most - 1));
  const picture = canvas(width, height);
  for (const at of ticks(1, most, 4))
    picture.append(
        svg('line', {class: 'grid', x1: left, x2: width - right, y1: y(at), y2: y(at)}),
        svg('text', {class: 'tick', x: left - 8, y: y(at) + 4, 'text-anchor': 'end'}, `${at}×`));
  const apart = Math.ceil(layers.length / Math.max(2, Math.floor(width / 34)));
  layers.forEach((layer, i) => {
    if (i % apart === 0)
      picture.append(
          svg('text', {class: 'tick', x: x(layer), y: height - bottom + 18, 'text-anchor': 'middle'}, layer));
  });
  picture.append(
      svg('text', {class: 'tick', x: (left + width - right) / 2, y: height - 4, 'text-anchor': 'middle'},
          'layer'));
  for (const part of ['k', 'v']) {
    const own = rows.filter((row) => String(row.part).toLowerCase() === part && isNumber(row.ratio))
                    .sort((a, b) => a.layer - b.layer);
    const colour = part === 'k' ? 'var(--c0)' : 'var(--c5)';
    if (own.length > 1)
      picture.append(svg('path', {
        fill: 'none',
        style: `stroke:${colour};stroke-width:2;opacity:.6${part === 'v' ? ';stroke-dasharray:4 4' : ''}`,
        d: `M${own.map((row) => `${x(row.layer)} ${y(row.ratio)}`).join('L')}`
      }));
    for (const row of own) {
      const [cx, cy] = [x(row.layer), y(row.ratio)];
      picture.append(spot(
          `layer ${row.layer}, ${part === 'k' ? 'keys' : 'values'}: ${times(row.ratio)}\n${
              humanBytes(row.raw_bytes)} became ${humanBytes(row.packed_bytes)}`,
          svg('circle', {class: 'ring', cx, cy, r: 10}),
          part === 'k' ?
              svg('circle', {cx, cy, r: 5.5, style: `fill:${colour}`}) :
              svg('rect', {x: cx - 5, y: cy - 5, width: 10, height: 10, style: `fill:${colour}`})));
    }
  }
  return picture;
}

function addLossless() {
  const cases = (report.cases ?? []).filter((row) => row.lossless?.some((one) => isNumber(one.ratio)));
  if (cases.length === 0) return;
  const most =
      Math.max(1.2, 1.04 * Math.max(...cases.flatMap((row) => row.lossless.map((one) => one.ratio ?? 1))));
  const key = legend([
    [keySample(svg('circle', {cx: 11, cy: 7, r: 5.5, style: 'fill:var(--c0)'})), 'keys'],
    [keySample(svg('rect', {x: 6, y: 2, width: 10, height: 10, style: 'fill:var(--c5)'})), 'values'],
  ]);
  const columns = [
    {name: 'layer', cell: (row) => row.layer},
    {name: 'part', kind: 'text', cell: (row) => String(row.part).toUpperCase()},
    {name: 'pages', cell: (row) => row.pages},
    {name: 'raw', cell: (row) => humanBytes(row.raw_bytes)},
    {name: 'packed', cell: (row) => humanBytes(row.packed_bytes)},
    {name: 'ratio', cell: (row) => times(row.ratio)},
  ];
  const pictures = cases.map((row) => {
    const name = nameOf(row);
    return element(
        'figure', {'data-figure': 'lossless'}, element('figcaption', {}, caseTitle(row)),
        holder(
            `Lossless ratio by layer and part, ${name}`, (width) => drawLossless(row.lossless, most, width)),
        foldedTable(columns, row.lossless, `Lossless ratio, ${name}`));
  });
  addSection(
      'lossless', 'Packed without loss', 'Lossless',
      paragraph(
          'Raw ÷ packed bytes of the pages that were packed, by layer and part; every page is unpacked again and compared bit for bit before the raw one is given up.',
          'quiet'),
      key, element('div', {class: pictures.length > 1 ? 'pair' : ''}, pictures));
}
