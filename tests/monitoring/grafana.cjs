// What Grafana shows of answers to the queries of table panels: node grafana.cjs PACKAGES < asked.
//
// Transformations, overrides, texts and colours are those of Grafana's own package @grafana/data.
// What Grafana adds around it is here: which options a field has, and how its data source for
// Prometheus makes a table of an answer (a column for each label, sorted, as text).
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { createRequire } = require("node:module");

// all of a browser that is asked for; newer Nodes have a navigator
globalThis.window = globalThis;
globalThis.navigator ??= { language: "en", languages: ["en"] };

const packages = createRequire(path.join(process.argv[2], "package.json"));
const DATA = path.dirname(packages.resolve("@grafana/data"));
const part = (name) => require(path.join(DATA, `${name}.cjs`));

const { transformDataFrame } = part("transformations/transformDataFrame");
const { standardTransformers } = part("transformations/transformers");
const { standardTransformersRegistry } = part("transformations/standardTransformersRegistry");
const { applyFieldOverrides } = part("field/fieldOverrides");
const { getFieldDisplayName } = part("field/fieldState");
const processors = part("field/overrides/processors");
const { createTheme } = part("themes/createTheme");
const { locationUtil } = part("utils/location");
const { Registry } = part("utils/Registry");
const { formattedValueToString } = part("valueFormats/baseFormatters");
const { lastValueFrom } = packages("rxjs");

const TRANSFORMERS = new Map(Object.values(standardTransformers).map((it) => [it.id, it]));
standardTransformersRegistry.setInit(() =>
  [...TRANSFORMERS.values()].map((it) => ({ ...it, transformation: () => it })),
);
locationUtil.initialize({
  config: { appSubUrl: "" },
  getTimeRangeForUrl: () => ({}),
  getVariablesUrlParams: () => ({}),
});

const THEME = createTheme();
const always = () => true;
const numbers = (field) => field.type === "number";
const OPTIONS = {
  color: [processors.identityOverrideProcessor, always],
  decimals: [processors.numberOverrideProcessor, numbers],
  displayName: [processors.displayNameOverrideProcessor, always],
  fieldMinMax: [processors.booleanOverrideProcessor, numbers],
  links: [processors.dataLinksOverrideProcessor, always],
  mappings: [processors.valueMappingsOverrideProcessor, always],
  max: [processors.numberOverrideProcessor, numbers],
  min: [processors.numberOverrideProcessor, numbers],
  noValue: [processors.stringOverrideProcessor, always],
  thresholds: [processors.thresholdsOverrideProcessor, numbers],
  unit: [processors.unitOverrideProcessor, numbers],
};

/** The options that the panel's fields have: the standard ones, and those of its type. */
function optionsOf(panel) {
  const { defaults, overrides } = panel.fieldConfig;
  const named = overrides.flatMap((it) => it.properties.map((property) => property.id));
  const own = Object.keys(defaults.custom ?? {}).map((name) => `custom.${name}`);
  const ids = new Set([...Object.keys(OPTIONS), ...own, ...named]);
  return new Registry(() =>
    [...ids].map((id) => {
      const isCustom = id.startsWith("custom.");
      const known = isCustom ? [processors.identityOverrideProcessor, always] : OPTIONS[id];
      if (!known) throw new Error(`no option of fields: ${id}`);
      const [process, shouldApply] = known;
      return { id, path: id.replace("custom.", ""), name: id, isCustom, process, shouldApply };
    }),
  );
}

/** One answer as a table. */
function frameOf(target, series, isOnly) {
  if (target.format !== "table") throw new Error(`${target.refId} is no table`);
  const labels = [...new Set(series.flatMap((it) => Object.keys(it.labels)))].sort();
  const column = (label) => ({
    name: label,
    type: "string",
    config: { filterable: true },
    values: series.map((it) => it.labels[label] ?? ""),
  });
  const time = { name: "Time", type: "time", config: {}, values: series.map((it) => it.at) };
  const values = series.map((it) => Number(it.value));
  const name = isOnly ? "Value" : `Value #${target.refId}`;
  const fields = [time, ...labels.map(column), { name, type: "number", config: {}, values }];
  return { refId: target.refId, fields, length: series.length };
}

/** The answers of a table panel; one without series has no frame. */
function tableFrames(panel, answers) {
  const isOnly = answers.length === 1;
  return panel.targets.map((it, at) => frameOf(it, answers[at], isOnly)).filter((it) => it.length);
}

async function shown({ panel, answers }) {
  const made = await applied(panel, tableFrames(panel, answers));
  return made.map((frame) =>
    frame.fields.map((field) => {
      const displayed = field.values.map((it) => field.display(it));
      return {
        name: getFieldDisplayName(field, frame, made),
        kind: field.type,
        texts: displayed.map(formattedValueToString),
        colors: displayed.map((it) => it.color ?? ""),
        is_colored: field.config.custom?.cellOptions?.type === "color-background",
        most: field.state.range?.max ?? null,
        links: field.getLinks({ valueRowIndex: 0 }).map((it) => it.href),
      };
    }),
  );
}

/** What the panel's own transformations and options make of frames. */
async function applied(panel, frames) {
  for (const { id } of panel.transformations) {
    if (!TRANSFORMERS.has(id)) throw new Error(`no transformation: ${id}`); // Grafana skips it
  }
  return applyFieldOverrides({
    data: await lastValueFrom(transformDataFrame(panel.transformations, frames)),
    fieldConfig: panel.fieldConfig,
    fieldConfigRegistry: optionsOf(panel),
    replaceVariables: (text) => text,
    theme: THEME,
    timeZone: "utc",
  });
}

/** Answers standard input by this function, for each thing asked. */
function serve(answer) {
  Promise.all(JSON.parse(fs.readFileSync(0, "utf-8")).map(answer)).then(
    (all) => fs.writeFileSync(1, JSON.stringify(all)),
    (error) => {
      console.error(error);
      process.exitCode = 1;
    },
  );
}

module.exports = { THEME, applied, getFieldDisplayName, part, serve, tableFrames };
if (require.main === module) serve(shown);
