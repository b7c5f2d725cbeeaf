// What Grafana shows of the answers to all queries of a dashboard: node dashboard.cjs PACKAGES < asked.
//
// Transformations, overrides, reducers, names, texts, units and colours are those of Grafana's own
// package @grafana/data. How its data source names series is here; where things are drawn is not.
"use strict";

const { THEME, applied, getFieldDisplayName, part, serve, tableFrames } = require("./grafana.cjs");

const { getFieldDisplayValues } = part("field/fieldDisplay");
const { getFieldSeriesColor } = part("field/scale");
const { reduceField } = part("transformations/fieldReducer");
const { formattedValueToString } = part("valueFormats/baseFormatters");

const REDUCERS = { lastNotNull: "Last *", max: "Max" };
const TICKS = 4;

/** One series as the data source for Prometheus makes a frame of it. */
function seriesFrame(target, { labels, points }) {
  const legend = (target.legendFormat ?? "").replace(/{{\s*(\w+)\s*}}/g, (_, it) => labels[it] ?? "");
  const config = legend ? { displayNameFromDS: legend } : {};
  const values = points.map(([, value]) => Number(value));
  const time = { name: "Time", type: "time", config: {}, values: points.map(([at]) => at) };
  const { __name__: _, ...own } = labels;
  const value = { name: "Value", type: "number", labels: own, config, values };
  return { refId: target.refId, fields: [time, value], length: values.length };
}

const text = (field, value) => formattedValueToString(field.display(value));
const isNumber = (field) => field.type === "number";

function tableOf(frames) {
  const [frame] = frames;
  return (frame?.fields ?? []).map((field) => {
    const shown = field.values.map((it) => field.display(it));
    const cell = field.config.custom?.cellOptions;
    return {
      name: getFieldDisplayName(field, frame, frames),
      texts: shown.map(formattedValueToString),
      colors: shown.map((it) => it.color ?? ""),
      percents: shown.map((it) => it.percent ?? 0),
      cell: cell?.type ?? "auto",
      isNumber: isNumber(field),
    };
  });
}

function valuesOf(panel, frames) {
  const { reduceOptions } = panel.options;
  const found = getFieldDisplayValues({
    data: frames,
    fieldConfig: panel.fieldConfig,
    reduceOptions,
    replaceVariables: (it) => it,
    theme: THEME,
    timeZone: "utc",
  });
  return found
    .filter((it) => frames.length || it.display.text)
    .map(({ display }) => ({
      name: display.title ?? "",
      text: formattedValueToString(display),
      color: display.color ?? "",
      percent: display.percent ?? 0,
    }));
}

/** Round values of an axis from 0 to the greatest. */
function ticksOf(most, unit) {
  const base = unit === "bytes" ? 1024 : 10;
  const least = most / TICKS;
  const power = base ** Math.floor(Math.log(least) / Math.log(base));
  const factors = base === 10 ? [1, 2, 2.5, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const step = power * (factors.find((it) => power * it >= least) ?? base);
  return Array.from({ length: TICKS + 1 }, (_, at) => at * step);
}

function linesOf(panel, frames) {
  const reducers = panel.options.legend.calcs;
  const stacked = panel.fieldConfig.defaults.custom.stacking.mode === "normal";
  const sums = new Map();
  const lines = frames.flatMap((frame) => {
    const [times] = frame.fields.filter((it) => it.type === "time");
    return frame.fields.filter(isNumber).map((field) => {
      const calcs = reduceField({ field, reducers });
      const points = times.values.map((at, place) => [at, field.values[place]]);
      const floor = points.map(([at]) => (stacked ? (sums.get(at) ?? 0) : 0));
      points.forEach(([at, value], place) => sums.set(at, floor[place] + (value || 0)));
      return {
        name: getFieldDisplayName(field, frame, frames),
        color: getFieldSeriesColor(field, THEME).color,
        points: points.map(([at, value], place) => [at, floor[place] + value]),
        floor,
        legend: reducers.map((it) => text(field, calcs[it])),
        field,
      };
    });
  });
  if (!lines.length) return { lines, ticks: [], heads: [] };
  const { field } = lines[0];
  const found = Math.max(...lines.flatMap((it) => it.points.map(([, y]) => y)).filter(Number.isFinite));
  const ticks = ticksOf(field.config.max ?? (found > 0 ? found : 1), field.config.unit);
  return {
    lines: lines.map(({ field: _, ...it }) => it),
    ticks: ticks.map((it) => [it, text(field, it)]),
    heads: reducers.map((it) => REDUCERS[it]),
  };
}

function rowsOf(frames) {
  return frames.flatMap((frame) => {
    const [times] = frame.fields.filter((it) => it.type === "time");
    return frame.fields.filter(isNumber).map((field) => ({
      name: getFieldDisplayName(field, frame, frames),
      cells: times.values.map((at, place) => {
        const shown = field.display(field.values[place]);
        return { at, text: formattedValueToString(shown), color: shown.color ?? "" };
      }),
    }));
  });
}

async function drawn({ panel, answers }) {
  const isTable = panel.type === "table";
  const frames = isTable
    ? tableFrames(panel, answers.map((it) => it.map(latest)))
    : panel.targets.flatMap((it, at) => answers[at].map((one) => seriesFrame(it, one)));
  const made = await applied(panel, frames);
  switch (panel.type) {
    case "table":
      return tableOf(made);
    case "stat":
    case "bargauge":
      return valuesOf(panel, made);
    case "timeseries":
      return linesOf(panel, made);
    case "state-timeline":
      return rowsOf(made);
    default:
      throw new Error(`no panel of ours: ${panel.type}`);
  }
}

function latest({ labels, points }) {
  const [at, value] = points.at(-1);
  return { labels, at, value };
}

serve(drawn);
