'use strict';
// The page: elements, words for figures, sections and tables. All text goes in as text nodes, never as HTML.

const report = JSON.parse(document.getElementById('varve-document').textContent);

function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
}

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  setAttributes(node, attributes);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// --- words for figures; null is what was not measured ---

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

function humanBytes(bytes) {
  if (!isNumber(bytes)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    ++unit;
  }
  if (unit === 0) return `${bytes.toFixed(0)} B`;
  return `${bytes.toFixed(bytes < 10 ? 2 : bytes < 100 ? 1 : 0)} ${units[unit]}`;
}

const digits = '⁰¹²³⁴⁵⁶⁷⁸⁹';
const raised = (power) =>
    `10${power < 0 ? '⁻' : ''}${[...String(Math.abs(power))].map((digit) => digits[digit]).join('')}`;

// 2.3·10⁻⁵
function scientific(value) {
  const [mantissa, power] = value.toExponential(1).split('e');
  return `${mantissa.replace('-', '−')}·${raised(Number(power))}`;
}

function divergence(kl) {
  if (!isNumber(kl)) return '–';
  if (kl <= 0) return '0';
  if (kl < 1e-4) return scientific(kl);
  return kl < 0.1 ? String(Number(kl.toPrecision(2))) : kl.toFixed(2);
}

const figure = (value, decimals) => (isNumber(value) ? value.toFixed(decimals) : '–');
const percent = (share, decimals = 1) => (isNumber(share) ? `${(100 * share).toFixed(decimals)} %` : '–');
const times = (ratio) => (isNumber(ratio) ? `${ratio.toFixed(2)}×` : '–');
const count = (number) => (isNumber(number) ? number.toLocaleString('en-GB').replace(/,/g, '\u202f') : '–');

// "1 page", "3 pages"
const several = (number, what) => `${count(number)} ${what}${number === 1 ? '' : 's'}`;

// Short figures of unknown size: 3.41, 0.0012, 120.
function plain(value) {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (!isNumber(value)) return String(value);
  if (Number.isInteger(value)) return count(value);
  const size = Math.abs(value);
  if (size < 1e-3) return scientific(value);
  return size < 1 ? String(Number(value.toPrecision(3))) : value.toFixed(size < 100 ? 2 : 0);
}

// A plan, with places where a line may break.
function planName(text) {
  const code = element('code');
  for (const piece of String(text).split(/(?<=[,;:/])/)) code.append(piece, element('wbr'));
  return code;
}

// A case of the gate has a name beside its plan; f16 is everybody's baseline.
const nameOf = (row) => row.name || row.case || row.plan || '';
// A case's name and its plan, as the title of a figure.
function caseTitle(row) {
  const name = nameOf(row);
  return element('h3', {}, row.plan && row.plan !== name ? [name, ' '] : null, planName(row.plan ?? name));
}

const isBaseline = (row, index) => row.role === 'baseline' || (row.role === undefined && index === 0);

// --- sections ---

const sections = [];

function addSection(id, heading, short, ...content) {
  const title = element('h2', {id: `${id}-title`}, heading);
  const section = element('section', {id, 'aria-labelledby': `${id}-title`}, title, ...content);
  document.getElementById('main').append(section);
  sections.push({id, short});
  return section;
}

const paragraph = (text, kind) => element('p', kind ? {class: kind} : {}, text);

// columns: [{name, cell(row), kind: 'text' | 'plan' | 'long' or none for figures}]
// `stacked`: on a phone each row is a block of its own, with the names of the columns beside the figures.
function makeTable(columns, rows, caption, stacked) {
  const kindOf = (column) =>
      (column.kind === 'plan' || column.kind === 'long' ? `text ${column.kind}` : column.kind);
  const head = columns.map((column) => element('th', {scope: 'col', class: kindOf(column)}, column.name));
  const body = rows.map((row, index) => element('tr', {}, columns.map((column) => {
                          const content = column.cell(row, index);
                          return element(
                              'td', {class: kindOf(column), 'data-name': column.name},
                              content instanceof Node ? content : plain(content));
                        })));
  const table = element(
      'table', stacked ? {class: 'stacked'} : {}, element('thead', {}, element('tr', {}, head)),
      element('tbody', {}, body));
  return element('div', {class: 'scroll', role: 'region', tabindex: '0', 'aria-label': caption}, table);
}

function foldedTable(columns, rows, caption) {
  return element(
      'details', {}, element('summary', {}, 'These figures as a table'), makeTable(columns, rows, caption));
}
