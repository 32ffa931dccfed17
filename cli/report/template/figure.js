// Figures: SVG that is drawn for the width at hand, marks that pointer and keyboard reach, axes, patterns.

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  setAttributes(node, attributes);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// --- what a mark says: shown beside it while the pointer or the keyboard is there ---

const tip = document.getElementById('tip');

function showTip(spot) {
  const box = spot.getBoundingClientRect();
  tip.textContent = spot.getAttribute('aria-label');
  tip.classList.add('shown');
  const x = Math.min(
      Math.max(12, box.left + box.width / 2 - tip.offsetWidth / 2), window.innerWidth - tip.offsetWidth - 12);
  const above = box.top - tip.offsetHeight - 10;
  tip.style.left = `${x}px`;
  tip.style.top =
      `${above > 8 ? above : Math.min(box.bottom + 10, window.innerHeight - tip.offsetHeight - 8)}px`;
}

const hideTip = () => tip.classList.remove('shown');
// A mark that has just got the focus may scroll into view.
window.addEventListener(
    'scroll', () => (document.activeElement?.matches('.spot') ? showTip(document.activeElement) : hideTip()),
    {passive: true});
window.addEventListener('keydown', (event) => event.key === 'Escape' && hideTip());

// A mark. The shapes may hold one of class "ring", which shows the focus.
function spot(text, ...shapes) {
  const group = svg('g', {class: 'spot', role: 'img', 'aria-label': text, tabindex: '-1'}, ...shapes);
  group.addEventListener('pointerenter', () => showTip(group));
  group.addEventListener('pointerleave', hideTip);
  group.addEventListener('focus', () => showTip(group));
  group.addEventListener('blur', hideTip);
  return group;
}

// One tab stop per figure; arrow keys go to the next mark in that direction.
function rove(root) {
  const spots = [...root.querySelectorAll('.spot')];
  if (spots.length === 0) return;
  spots[0].setAttribute('tabindex', '0');
  const middle = (node) => {
    const box = node.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  const directions = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
  root.addEventListener('keydown', (event) => {
    const at = event.target.closest('.spot');
    if (!at) return;
    let next = null;
    if (event.key === 'Home') next = spots[0];
    if (event.key === 'End') next = spots[spots.length - 1];
    const way = directions[event.key];
    if (way) {
      const [x, y] = middle(at);
      let best = Infinity;
      for (const other of spots) {
        const [ox, oy] = middle(other);
        const ahead = (ox - x) * way[0] + (oy - y) * way[1];
        const aside = Math.abs((ox - x) * way[1]) + Math.abs((oy - y) * way[0]);
        if (other === at || ahead < 0.5 || ahead + 3 * aside >= best) continue;
        best = ahead + 3 * aside;
        next = other;
      }
      // At an edge: on in the order of the marks.
      const step = way[0] + way[1];
      next ??= spots[(spots.indexOf(at) + step + spots.length) % spots.length];
    }
    if (!next) return;
    event.preventDefault();
    at.setAttribute('tabindex', '-1');
    next.setAttribute('tabindex', '0');
    next.focus();
  });
}

// --- a figure: title, note, legend, picture, and its table ---

// draw(width) gives {node: <svg>}; called again when the width changes.
function holder(label, draw) {
  const box = element('div', {class: 'holder'});
  let drawn = 0;
  const redraw = () => {
    const width = Math.floor(box.clientWidth);
    if (width < 40 || width === drawn) return;
    drawn = width;
    const picture = draw(width);
    picture.setAttribute('role', 'group');
    picture.setAttribute('aria-label', label);
    box.replaceChildren(picture);
    rove(picture);
  };
  new ResizeObserver(redraw).observe(box);
  box.redraw = () => {
    drawn = 0;
    redraw();
  };
  return box;
}

function makeFigure({id, title, note, key, body, table}) {
  const caption = element('figcaption', {}, element('h3', {}, title), note ? paragraph(note) : null);
  return element('figure', {'data-figure': id}, caption, key, body, table);
}

function canvas(width, height) {
  return svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`});
}

// --- axes ---

// 1, 2 or 5 times a power of ten: about `wanted` of them up to `most`.
function tickStep(most, wanted) {
  const raw = Math.max(most, 1e-12) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= raw * 0.999);
}

function ticks(low, high, wanted) {
  const step = tickStep(high - low, wanted);
  const list = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step)
    list.push(Number(at.toPrecision(12)));
  return list;
}

// Of bytes: steps are round in the unit that they are written in.
function byteTicks(most, wanted) {
  const unit = 1024 ** Math.floor(Math.log(Math.max(most, 1)) / Math.log(1024));
  return ticks(0, most / unit, wanted).map((value) => value * unit);
}

const shortBytes = (bytes) =>
    (bytes === 0 ? '0' : humanBytes(bytes).replace(/\.0+ /, ' ').replace(/(\.\d*?)0+ /, '$1 '));

// "10⁻⁵", "0.01", "1": short enough for neighbours on an axis.
function decadeText(decade) {
  if (decade >= -2 && decade <= 2) return String(Number((10 ** decade).toPrecision(1)));
  return raised(decade);
}

const leastDivergence = 1e-7;  // below this f32 logits say nothing

// Powers of ten around the divergences of some rows: {low, high, at(kl) in 0…1}.
function divergenceAxis(values) {
  const measured =
      values.filter((kl) => isNumber(kl) && kl > 0).map((kl) => Math.log10(Math.max(kl, leastDivergence)));
  let low = measured.length ? Math.floor(Math.min(...measured)) : -5;
  let high = measured.length ? Math.ceil(Math.max(...measured)) : -1;
  if (high - low < 2) --low;
  if (high - low < 2) ++high;
  const at = (kl) =>
      Math.min(1, Math.max(0, (Math.log10(Math.max(kl, leastDivergence)) - low) / (high - low)));
  return {low, high, at};
}

// --- patterns and colours ---

// Over a colour, in the colour of the card, so that areas differ without hue, too.
const patterns = {
  filling: (id) =>
      svg('pattern', {id, width: 6, height: 6, patternUnits: 'userSpaceOnUse'},
          svg('circle', {cx: 2, cy: 2, r: 1.3, class: 'cutfill'}),
          svg('circle', {cx: 5, cy: 5, r: 1.3, class: 'cutfill'})),
  full: (id) =>
      svg('pattern', {id, width: 8, height: 6, patternUnits: 'userSpaceOnUse'},
          svg('line', {x1: 0, y1: 3, x2: 8, y2: 3, class: 'cutstroke', 'stroke-width': 1.6})),
  packed: (id) => svg(
      'pattern', {id, width: 7, height: 7, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'},
      svg('line', {x1: 3, y1: 0, x2: 3, y2: 7, class: 'cutstroke', 'stroke-width': 2})),
  demoted: (id) =>
      svg('pattern', {id, width: 5, height: 5, patternUnits: 'userSpaceOnUse'},
          svg('line', {x1: 2, y1: 0, x2: 2, y2: 5, class: 'cutstroke', 'stroke-width': 1.2})),
  folded: (id) =>
      svg('pattern', {id, width: 6, height: 6, patternUnits: 'userSpaceOnUse'},
          svg('circle', {cx: 3, cy: 3, r: 1.5, class: 'cutfill'})),
  dropped: (id) => svg(
      'pattern', {id, width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(-45)'},
      svg('line', {x1: 3, y1: 0, x2: 3, y2: 6, class: 'badstroke', 'stroke-width': 1.1})),
};

function addPatterns() {
  const defs = Object.entries(patterns).map(([name, make]) => make(`pattern-${name}`));
  document.body.prepend(
      svg('svg', {width: 0, height: 0, 'aria-hidden': 'true', style: 'position:absolute'},
          svg('defs', {}, defs)));
}

const patternFill = (name) => (patterns[name] ? `url(#pattern-${name})` : null);

// An area twice: its colour, and its pattern on top.
function patterned(name, attributes, pattern, look) {
  const over = patternFill(pattern);
  return [svg(name, {...attributes, ...look}), over ? svg(name, {...attributes, fill: over}) : null];
}

// What stands for a mark in a legend: shapes on 22 by 14.
function keySample(...shapes) {
  return svg('svg', {viewBox: '0 0 22 14', 'aria-hidden': 'true'}, ...shapes);
}

function swatch(pattern, look) {
  return keySample(patterned('rect', {width: 22, height: 14}, pattern, look));
}

function legend(entries) {
  return element('ul', {class: 'key'}, entries.map(([picture, text]) => element('li', {}, picture, text)));
}

// Colours of rungs, the same in all figures: floats have their own, others follow in the order in which they
// appear.
const rungColours = new Map([['f16', 'var(--c0)'], ['bf16', 'var(--c8)'], ['f32', 'var(--c9)']]);
function rungColour(rung) {
  if (!rungColours.has(rung)) rungColours.set(rung, `var(--c${1 + (rungColours.size - 3) % 7})`);
  return rungColours.get(rung);
}
