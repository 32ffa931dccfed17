// A chart of bytes over tokens seen: its axes, lines in it, and marks along it that say what is there.

// `steps` ascend; `most` bytes are at the top.
function byteChart(width, height, steps, most) {
  const [left, right, top, bottom] = [54, 8, 8, 40];
  const [first, last] = [steps[0], steps[steps.length - 1]];
  const floor = height - bottom;
  const x = (tokens) =>
      left + (width - left - right) * (last > first ? (tokens - first) / (last - first) : 0);
  const y = (bytes) => top + (floor - top) * (1 - Math.min(bytes, most) / most);
  const picture = canvas(width, height);
  for (const at of byteTicks(most, 4)) {
    picture.append(
        svg('line', {class: 'grid', x1: left, x2: width - right, y1: y(at), y2: y(at)}),
        svg('text', {class: 'tick', x: left - 6, y: y(at) + 4, 'text-anchor': 'end'}, shortBytes(at)));
  }
  for (const at of ticks(first, last, width > 420 ? 6 : 4)) {
    picture.append(svg('text', {class: 'tick', x: x(at), y: floor + 16, 'text-anchor': 'middle'}, count(at)));
  }
  picture.append(
      svg('line', {class: 'axis', x1: left, x2: width - right, y1: floor, y2: floor}),
      svg('text', {class: 'tick', x: (left + width - right) / 2, y: height - 3, 'text-anchor': 'middle'},
          'tokens seen'));
  return {picture, steps, x, y, top, floor, left, end: width - right};
}

// "x y" of each step, for paths.
const chartPoints = (chart, values) =>
    values.map((value, i) => `${chart.x(chart.steps[i]).toFixed(1)} ${chart.y(value).toFixed(1)}`);

const chartLine = (chart, values, look) =>
    svg('path', {...look, d: `M${chartPoints(chart, values).join('L')}`});

// Marks at up to 24 of the steps, evenly spread; text(i) is what step i says.
function addChartMarks(chart, text) {
  const stops = Math.min(chart.steps.length, 24);
  const wide = (chart.end - chart.left) / stops;
  for (let stop = 0; stop < stops; ++stop) {
    const i = Math.round(stop * (chart.steps.length - 1) / Math.max(1, stops - 1));
    const at = chart.x(chart.steps[i]);
    chart.picture.append(spot(
        text(i),
        svg('rect',
            {class: 'hit', x: at - wide / 2, y: chart.top, width: wide, height: chart.floor - chart.top}),
        svg('line', {class: 'ring', x1: at, x2: at, y1: chart.top, y2: chart.floor})));
  }
}
