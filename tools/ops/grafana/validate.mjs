// node validate.mjs FILE…: validate dashboards against the JSON schema generated from dashboard.ts.
import { readFileSync } from 'node:fs';
import Ajv from 'ajv';
import { createGenerator } from 'ts-json-schema-generator';

const at = (name) => new URL(name, import.meta.url).pathname;
const schema = createGenerator({
  path: at('dashboard.ts'),
  tsconfig: at('tsconfig.json'),
  type: 'SolarDashboard',
  expose: 'none', // several plugins have a type Options
}).createSchema('SolarDashboard');
const ajv = new Ajv({ allErrors: true, strict: false });
const matches = ajv.compile(schema);
const read = (path) => JSON.parse(readFileSync(path, 'utf8'));

const lines = (one) => one.panels.find((panel) => panel.type === 'timeseries');

// The schema must reject each of these changes to a dashboard.
const broken = {
  'a panel without a description': (one) => delete lines(one).description,
  'a panel without a unit': (one) => delete lines(one).fieldConfig.defaults.unit,
  'an unknown kind of panel': (one) => (lines(one).type = 'timeserie'),
  'an unknown field': (one) => (lines(one).titel = 'x'),
  'an option of the wrong type': (one) => (lines(one).options.legend.showLegend = 'yes'),
  'an unknown draw style': (one) => (lines(one).fieldConfig.defaults.custom.drawStyle = 'dots'),
  'an unknown kind of variable': (one) => (one.templating.list[1].type = 'label'),
  'a missing schema version': (one) => delete one.schemaVersion,
};

let failed = false;
for (const path of process.argv.slice(2)) {
  const good = matches(read(path));
  failed ||= !good;
  console.log(good ? 'valid' : 'INVALID', path);
  for (const error of good ? [] : matches.errors.slice(0, 20)) {
    console.log(' ', error.instancePath, error.message, JSON.stringify(error.params));
  }
  for (const [what, change] of Object.entries(broken)) {
    const one = read(path);
    change(one);
    if (matches(one)) {
      failed = true;
      console.log('NOT REJECTED', path, what);
    }
  }
}
process.exit(failed ? 1 : 0);
