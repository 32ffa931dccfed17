// The texts that each plan wrote, side by side; what differs from the baseline's is marked.

// Length of the common beginning, in whole characters.
function commonPrefix(a, b) {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) ++length;
  const splits = (text) => length > 0 && length < text.length && text.charCodeAt(length) >= 0xdc00 &&
      text.charCodeAt(length) < 0xe000;
  return splits(a) || splits(b) ? length - 1 : length;
}

function textFigures(row, baseline) {
  const speed = `${figure(row.tokens_per_s, 1)} tokens/s`;
  if (baseline) return `${humanBytes(row.cache_bytes)} · ${speed}`;
  const size =
      row.ratio >= 1 ? `${times(row.ratio)} smaller than f16` : 'larger than f16 (pages are allocated whole)';
  const same = isNumber(row.first_difference) ? `differs at token ${row.first_difference + 1}` :
                                                'the same text as f16';
  return `${humanBytes(row.cache_bytes)} · ${size} · ${speed} · KL ${divergence(row.kl_mean)} · ${same}`;
}

function textCard(row, number, reference) {
  const baseline = row === reference;
  const same = baseline ? row.text.length : commonPrefix(reference.text, row.text);
  const begin =
      Math.min(row.text.length - row.text.trimStart().length, same);  // blanks between prompt and text
  const body = element('p', {class: 'story', lang: ''}, row.text.slice(begin, same));
  if (same < row.text.length)
    body.append(element(
        'mark', {}, element('span', {class: 'unsaid'}, '(differs from here) '), row.text.slice(same)));
  return element(
      'article', {class: 'card', 'data-figure': 'text'},
      element('h3', {}, element('span', {class: 'num'}, number), planName(row.plan)),
      paragraph(textFigures(row, baseline), 'note small'), body);
}

function addTexts() {
  const rows = (report.plans ?? []).filter((row) => typeof row.text === 'string');
  if (rows.length > 0) {
    addSection(
        'texts', 'The texts', 'Texts',
        paragraph('What differs from the f16 text is marked, from the first difference on.', 'quiet'),
        element(
            'div', {class: 'pair'},
            rows.map((row) => textCard(row, report.plans.indexOf(row) + 1, rows[0]))));
  }
  if (report.prompt?.text) {
    const folded = element(
        'details', {class: 'card'},
        element('summary', {}, `The prompt, ${several(report.prompt.tokens, 'token')}`),
        element('pre', {}, report.prompt.text));
    (document.getElementById('texts') ?? document.getElementById('main')).append(folded);
  }
}
